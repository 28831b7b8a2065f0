"""Processes: started, asked, told who is in their cluster, and killed.

`launch` runs a script as a scheduler does; `workers` are processes that answer
questions; `cluster` tells a script who is in its cluster; `deaths` ends processes at
chosen moments. None of them imports TensorFlow before it is needed.
"""

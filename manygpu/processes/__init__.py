"""Processes: started, asked, told who is in their cluster, and killed.

`launch` runs a script as a scheduler does; `workers` are processes that answer
questions; `door` lets in who knows a secret, over a socket; `cluster` tells a script
who is in its cluster; `deaths` ends processes at chosen moments. None of them imports
TensorFlow before it is needed.
"""

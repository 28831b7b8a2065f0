from tools.standalone import Package

__all__ = ["Package"]

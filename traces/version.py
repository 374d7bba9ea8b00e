"""The version of dfsim, on the lowest floor because traces and results carry it."""

__version__ = "0.1.0"

"""The version of this package, the same as that of the library for which it is written."""

__version__ = "0.1.0"

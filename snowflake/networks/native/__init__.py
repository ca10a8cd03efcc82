"""Parts of the networks in C++, compiled on the user's machine at first use and called without holding Python's lock.

Plain C++ without PyTorch's headers: it compiles in seconds, and the library does not depend on PyTorch's version.
"""

# MuJoCo is an extension module without stubs: its names are of any type.
from typing import Any

def __getattr__(name: str) -> Any: ...

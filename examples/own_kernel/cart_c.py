"""The cart's kernel in C, compiled beforehand:

cc -O2 -fPIC -shared -ffp-contract=off cart.c -o libcart.so -I$(python -c "from reactor_gymnasium import *; print(kernel_include())")
"""

from __future__ import annotations

import os
from pathlib import Path

from cart import CartEnv

from reactor_gymnasium import CRows, register_kernel


class CCart(CRows):
    library, prefix = os.environ.get("LIBCART", Path(__file__).parent / "libcart.so"), "cart"
    state = {"pos": float, "speed": float, "last": float}
    constants = ("force", "friction")


register_kernel(CartEnv, CCart)

"""jax's `take` and `take_along_axis` with gradients by gradloom, inside of jitted programs, on the CPU.

The forward op is jax's own. The gradient adds each value in the order of the indices, with the same bits in every run.
A bad index, for which jax's forward op gives NaN, is an error in the gradient. Reverse mode only, of any order.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

try:
    import jax
except ImportError as error:
    raise ImportError(f"gradloom.jax needs jax: pip install jax ({error})") from None
if not hasattr(jax, "ffi"):
    raise ImportError(f"gradloom.jax needs jax 0.5 or later; this is {jax.__version__}")

import numpy as np
from jax import numpy as jnp

from gradloom._extension import Extension
from gradloom.errors import InvalidArgument, Unsupported

_Array = Any
_Shape = tuple[int, ...]

_here = Path(__file__).resolve().parent


def _register() -> None:
    extension = Extension(
        "gradloom.jax",
        _here / "_jax.cpp",
        [_here.parent / "_c_functions.h"],
        f"jax {jax.__version__}",
        [Path(jax.ffi.include_dir())],
    ).load()
    for name in ("gradloom_gather_grad", "gradloom_gather_elements_grad"):
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(extension, name)), platform="cpu")


_register()


def _gradient(name: str, dy: _Array, indices: _Array, axis: int, shape: _Shape) -> _Array:
    call = jax.ffi.ffi_call(name, jax.ShapeDtypeStruct(shape, dy.dtype), vmap_method="sequential")
    return call(indices, dy, axis=np.int64(axis))


def _differentiable(function: Callable[[_Array, _Array, int, _Shape], _Array]) -> Any:
    return jax.custom_vjp(function, nondiff_argnums=(2, 3))


# Each function's gradient is the other one: so there are gradients of any order.
@_differentiable
def _take(x: _Array, indices: _Array, axis: int, shape: _Shape) -> _Array:
    return jnp.take(x, indices, axis=axis)


@_differentiable
def _take_grad(dy: _Array, indices: _Array, axis: int, shape: _Shape) -> _Array:
    return _gradient("gradloom_gather_grad", dy, indices, axis, shape)


@_differentiable
def _take_along(x: _Array, indices: _Array, axis: int, shape: _Shape) -> _Array:
    return jnp.take_along_axis(x, indices, axis=axis)


@_differentiable
def _take_along_grad(dy: _Array, indices: _Array, axis: int, shape: _Shape) -> _Array:
    return _gradient("gradloom_gather_elements_grad", dy, indices, axis, shape)


def _pair(forward: Any, backward: Any) -> None:
    for one, other in ((forward, backward), (backward, forward)):

        def keep(value: _Array, indices: _Array, axis: int, shape: _Shape, one: Any = one) -> tuple[_Array, _Array]:
            return one(value, indices, axis, shape), indices

        def gradient(axis: int, shape: _Shape, indices: _Array, dy: _Array, other: Any = other) -> tuple[_Array, None]:
            return other(dy, indices, axis, shape), None

        one.defvjp(keep, gradient)


_pair(_take, _take_grad)
_pair(_take_along, _take_along_grad)

_SERVED = ("float64", "float32", "float16", "bfloat16")


def _checked(op: str, x: Any, indices: Any, axis: int) -> tuple[_Array, _Array, int]:
    x, indices = jnp.asarray(x), jnp.asarray(indices)
    if x.dtype.name not in _SERVED:
        raise Unsupported(f"gradloom.jax.{op}: x is {x.dtype.name}; it must be one of {', '.join(_SERVED)}")
    if not jnp.issubdtype(indices.dtype, jnp.integer):
        raise InvalidArgument(f"gradloom.jax.{op}: indices are {indices.dtype.name}; they must be integers")
    if indices.dtype.name in ("uint32", "uint64"):  # a large one must not become a negative one
        wide = jnp.arange(0).dtype  # int64 where jax has it
        largest = min(np.iinfo(wide.name).max, np.iinfo(indices.dtype.name).max)
        indices = jnp.minimum(indices, np.array(largest, indices.dtype)).astype(wide)
    elif indices.dtype.name not in ("int32", "int64"):
        indices = indices.astype(jnp.int32)
    if not -x.ndim <= axis < x.ndim:
        raise InvalidArgument(f"gradloom.jax.{op}: axis is {axis}; it must be in [{-x.ndim}, {x.ndim - 1}]")
    return x, indices, axis % x.ndim


def take(x: _Array, indices: _Array, axis: int | None = None) -> _Array:
    """`jax.numpy.take`, with GatherGrad as its gradient."""
    if axis is None:
        x, axis = jnp.ravel(x), 0
    x, indices, axis = _checked("take", x, indices, axis)
    return _take(x, indices, axis, x.shape)


def take_along_axis(x: _Array, indices: _Array, axis: int | None = -1) -> _Array:
    """`jax.numpy.take_along_axis`, with GatherElementsGrad as its gradient."""
    if axis is None:
        x, axis = jnp.ravel(x), 0
    x, indices, axis = _checked("take_along_axis", x, indices, axis)
    if x.ndim != indices.ndim:
        raise InvalidArgument(
            f"gradloom.jax.take_along_axis: indices have {indices.ndim} dims; they must have {x.ndim}, as x"
        )
    # All but the axis are broadcast to each other, as jax does.
    others = [np.delete(np.array(array.shape), axis) for array in (x, indices)]
    common = np.insert(np.array(np.broadcast_shapes(*map(tuple, others)), int), axis, 0)
    x, indices = (
        jnp.broadcast_to(array, tuple(int(n) for n in np.where(np.arange(x.ndim) == axis, array.shape, common)))
        for array in (x, indices)
    )
    return _take_along(x, indices, axis, x.shape)


__all__ = ["take", "take_along_axis"]

"""How an op is made known to PyTorch.

A `Composite` is a Python function of PyTorch's ops and of kernels; what traces or transforms a program sees those. A
`Kernel` is an op that it cannot look into: a CPU kernel, a fake kernel that knows shapes alone, and a derivative.
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd import forward_ad

from gradloom.errors import Unsupported

Shape = Sequence[int]

LIBRARY = torch.library.Library("gradloom", "FRAGMENT")
SIXTEEN_BITS = (torch.bfloat16, torch.float16)
DTYPES = frozenset((torch.float64, torch.float32, *SIXTEEN_BITS))


def _dispatch_sets() -> tuple[Any, Any] | None:
    """The dispatch keys of dense CPU memory, and those of a thread that runs no mode and no transform."""
    try:
        from torch._C import DispatchKey, DispatchKeySet, _dispatch_keys, _dispatch_tls_local_include_set

        plain = DispatchKeySet(DispatchKey.CPU).add(DispatchKey.ADInplaceOrView)
        plain = plain.add(DispatchKey.AutogradCPU).add(DispatchKey.AutocastCPU)
        idle = DispatchKeySet(DispatchKey.BackendSelect).add(DispatchKey.ADInplaceOrView)
        _dispatch_keys, _dispatch_tls_local_include_set()
    except (ImportError, AttributeError, TypeError):
        return None
    return plain, idle


_sets = _dispatch_sets()
_keys: Any = getattr(torch._C, "_dispatch_keys", None)
_included: Any = getattr(torch._C, "_dispatch_tls_local_include_set", None)


def is_plain(values: Sequence[Any]) -> bool:
    """Whether a kernel may take these without PyTorch's dispatcher, which would do nothing but call it."""
    if _sets is None:
        return False
    plain, idle = _sets
    if not _included() == idle:  # faster than !=, which these do not define
        return False
    for value in values:
        if isinstance(value, Tensor) and not _keys(value) == plain:
            return False
    return True


def _is_before_transforms() -> bool:
    """Whether transforms of torch.func are on that have yet to see a call; one by the dispatcher they have seen."""
    return torch._C._are_functorch_transforms_active() and not torch._C._dispatch_tls_is_dispatch_key_excluded(
        torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode
    )


def records(values: Sequence[Any]) -> bool:
    """Whether autograd, in reverse or forward mode, or a transform of torch.func may record an op of these."""
    if forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active():
        return any(isinstance(v, Tensor) and (v.is_floating_point() or v.is_complex()) for v in values)
    if torch.is_grad_enabled():
        for value in values:
            if isinstance(value, Tensor) and value.requires_grad:
                return True
    return False


def records_backward(values: Sequence[Any]) -> bool:
    """Whether autograd may record an op of these in reverse mode alone."""
    return forward_ad._current_level < 0 and records(values)


def detached(tensor: Tensor) -> Tensor:
    return tensor.detach() if tensor.requires_grad else tensor


def check_differentiable(op: str, **tensors: Tensor | None) -> None:
    """Refuses what no gradient kernel serves, before the forward pass rather than in the backward pass."""
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if tensor.is_cpu and tensor.dtype in DTYPES and tensor.layout == torch.strided and not tensor.is_nested:
            continue
        if tensor.device.type not in ("cpu", "meta"):
            raise Unsupported(f"gradloom::{op}: {name} is on device {tensor.device}; gradients are computed on cpu")
        if tensor.dtype not in DTYPES:
            raise Unsupported(
                f"gradloom::{op}: {name} requires a gradient and has dtype {_name(tensor.dtype)}; "
                f"expected float16, bfloat16, float32 or float64"
            )
        if tensor.is_nested:
            raise Unsupported(f"gradloom::{op}: {name} is a nested tensor; expected a dense one")
        if tensor.layout != torch.strided:
            raise Unsupported(f"gradloom::{op}: {name} has layout {_name(tensor.layout)}; expected strided")


def _name(value: object) -> str:
    return str(value).removeprefix("torch.")


def differentiable(
    name: str,
    forward: Callable[..., Any],
    setup: Callable[[Any, tuple[Any, ...], Any], None],
    backward: Callable[..., Any],
    *,
    linear: bool = True,
) -> Callable[..., Any]:
    """`forward` with this derivative. `setup(ctx, inputs, output)` saves what `backward(ctx, *grads)` reads.

    A function that is linear in its tensors of floats is its own derivative in forward mode.
    """

    def save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        setup(ctx, inputs, output)
        if linear and forward_ad._current_level >= 0:
            # The tensors that `setup` saves, too: vmap wants them in the same order.
            ctx.save_for_forward(*(a for a in inputs if isinstance(a, Tensor) and not a.is_floating_point()))
            ctx.inputs = [_Described(a) if isinstance(a, Tensor) else a for a in inputs]

    # The form that transforms need makes a call ten times as expensive: PyTorch binds its arguments by signature.
    def recorded(ctx: Any, *args: Any) -> Any:
        output = forward(*args)
        save(ctx, args, output)
        return output

    def jvp(ctx: Any, *tangents: Any) -> Any:
        if not linear:
            raise Unsupported(f"gradloom::{name}: forward-mode derivatives are not implemented")
        like = next(t for t in tangents if t is not None)
        indices = iter(ctx.saved_tensors)
        along = []
        for value, tangent in zip(ctx.inputs, tangents, strict=True):
            if not isinstance(value, _Described):
                along.append(value)
            elif not value.differentiable:
                along.append(next(indices))
            else:
                along.append(like.new_zeros(value.shape) if tangent is None else tangent)
        return apply(*along)

    derivatives = {"backward": staticmethod(backward), "jvp": staticmethod(jvp)}
    eager: Any = type(name, (torch.autograd.Function,), {"forward": staticmethod(recorded), **derivatives})
    transformed: Any = type(
        name,
        (torch.autograd.Function,),
        {
            "forward": staticmethod(lambda *args: forward(*_opened(args))),
            "setup_context": staticmethod(lambda ctx, inputs, output: save(ctx, _opened(inputs), output)),
            "generate_vmap_rule": True,
            **derivatives,
        },
    )

    def apply(*args: Any) -> Any:
        if not torch._C._are_functorch_transforms_active():
            return eager.apply(*args)
        if _is_before_transforms():
            return transformed.apply(*(_Opaque(a) if isinstance(a, list | tuple) else a for a in args))
        if torch._C._functorch.peek_interpreter_stack().key() == torch._C._functorch.TransformType.Vmap:
            return forward(*args)  # whose ops are PyTorch's, with its derivatives beneath this vmap
        raise Unsupported(f"torch.ops.gradloom.{name} in a transform of torch.func: call gradloom.torch's function")

    return apply


class _Opaque:
    """A shape that vmap does not take apart as a sequence of values to be mapped."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _opened(args: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(a.value if isinstance(a, _Opaque) else a for a in args)


class _Described:
    """What forward mode needs to know of a tensor that it must not keep."""

    def __init__(self, tensor: Tensor) -> None:
        self.shape = tensor.shape
        self.differentiable = tensor.is_floating_point()


class Composite:
    """An op that is a Python function, which eager calls reach without the dispatcher."""

    def __init__(self, schema: str, function: Callable[..., Any]) -> None:
        name = schema.partition("(")[0]
        LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        LIBRARY.impl(name, function, "CompositeImplicitAutograd")
        LIBRARY.impl(name, function, "FuncTorchBatchedDecomposition")
        self.overload = _overload(name)
        self._function = function

    def __call__(self, *args: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.overload(*args)
        if _is_before_transforms() or is_plain(args):
            return self._function(*args)
        return self.overload(*args)


class Kernel:
    """An op with a CPU kernel. A call reaches it directly where the dispatcher has nothing else to do."""

    def __init__(
        self,
        schema: str,
        cpu: Callable[..., Any],
        fake: Callable[..., Any],
        setup: Callable[[Any, tuple[Any, ...], Any], None],
        backward: Callable[..., Any],
        *,
        linear: bool = True,
    ) -> None:
        name = schema.partition("(")[0]
        LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        LIBRARY.impl(name, cpu, "CPU")
        torch.library.register_fake(f"gradloom::{name}", fake, lib=LIBRARY)
        LIBRARY.impl(name, self._autograd, "Autograd")
        LIBRARY.impl(name, self._refuse, "CompositeExplicitAutograd")  # of all devices and layouts but the CPU's dense
        self.overload = _overload(name)
        self._cpu = cpu
        self._apply = differentiable(name, self._below_autograd, setup, backward, linear=linear)

    def __call__(self, *args: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.overload(*args)
        if _is_before_transforms():
            return self._apply(*args)
        if is_plain(args):
            return self._apply(*args) if records(args) else self._cpu(*args)
        return self.overload(*args)

    def _autograd(self, *args: Any) -> Any:
        if records(args):
            return self._apply(*self._with_defaults(args))
        return self._below_autograd(*args)

    def _with_defaults(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The dispatcher leaves out arguments at the end that have their defaults."""
        missing = self.overload._schema.arguments[len(args) :]
        return (*args, *(argument.default_value for argument in missing))

    def _refuse(self, *args: Any) -> NoReturn:
        for value in args:
            if isinstance(value, Tensor) and (value.device.type != "cpu" or value.layout != torch.strided):
                raise Unsupported(
                    f"{self.overload}: got a tensor of layout {_name(value.layout)} on device {value.device}; expected "
                    "strided on cpu"
                )
        raise Unsupported(f"{self.overload}: expected strided tensors on cpu")

    def _below_autograd(self, *args: Any) -> Any:
        if is_plain(args):
            return self._cpu(*args)
        with torch._C._AutoDispatchBelowAutograd():
            return self.overload(*args)


def _overload(name: str) -> Any:
    name, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.gradloom, name), overload or "default")


__all__ = [
    "DTYPES",
    "LIBRARY",
    "SIXTEEN_BITS",
    "Composite",
    "Kernel",
    "Shape",
    "check_differentiable",
    "detached",
    "differentiable",
    "is_plain",
    "records",
    "records_backward",
]

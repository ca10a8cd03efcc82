"""What a recipe says: format and scale of every operand, operands of every GEMM, and which layers it is for."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from agents.errors import UserError, nearest
from snowflake.numerics.formats import BF16, find_format

OPERANDS: tuple[str, ...] = ("x", "w", "g")
"""Of a linear layer: input (M, K), weight (N, K), gradient of the output (M, N)."""
GEMMS: tuple[str, ...] = ("output", "grad_input", "grad_weight")
"""y = x w^T, dx = g w, dw = g^T x."""


def _choice(where: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UserError(f"{where} = {value!r} is unknown: {nearest(value, choices)}")


@dataclass(frozen=True)
class OperandConfig:
    """How one operand is quantised."""

    formats: tuple[str, ...] = ("e4m3",)
    """Formats to choose from, best first: e4m3, e5m2, bf16. One for a fixed format; several are a mixture (MoR)."""
    scale: str = "amax"
    """amax (of the tensor at hand), const (2^exponent), delayed (amax of the last updates) or gam."""
    kind: str = "pow2"
    """Scale of amax and delayed: pow2 (a power of two) or fp32 (max / amax)."""
    granularity: str = "tensor"
    """What has a scale, and in a mixture a format, of its own: tensor, row or block."""
    block: tuple[int, int] = (128, 128)
    """Rows and columns of a block."""
    group: str = "tensor"
    """Who shares the mantissa of gam: tensor or row."""
    margin: int = 0
    """Binary places kept free below the largest number."""
    exponent: int = 0
    """Exponent of const."""
    limit: int | None = None
    """Largest exponent, in size, of a power-of-two scale; None for what float32 allows."""
    history: int = 16
    """Updates that delayed looks back."""
    thresholds: tuple[float, ...] = (0.045, 0.055)
    """Mean relative error up to which a mixture takes each of its formats but the last."""

    def __post_init__(self) -> None:
        if not self.formats:
            raise UserError("an operand needs a format: give formats at least one name")
        for name in self.formats:
            find_format(name)
        _choice("scale", self.scale, ("amax", "const", "delayed", "gam"))
        _choice("kind", self.kind, ("pow2", "fp32"))
        _choice("granularity", self.granularity, ("tensor", "row", "block"))
        _choice("group", self.group, ("tensor", "row"))
        if min(self.block) < 1 or self.history < 1 or self.margin < 0:
            raise UserError("block and history are at least 1 and margin at least 0")
        if abs(self.exponent) > 40:
            raise UserError(f"exponent = {self.exponent} of a constant scale: must be within -40 and 40")
        if len(self.formats) > 1 and len(self.thresholds) < len(self.formats) - 1:
            raise UserError(f"a mixture of {len(self.formats)} formats needs {len(self.formats) - 1} thresholds")
        if self.scale == "delayed" and self.granularity != "tensor":
            raise UserError("delayed scales are the tensor's: set granularity to 'tensor'")
        if self.group == "row" and self.granularity not in ("row", "block"):
            raise UserError("rows share a mantissa only where granularity is 'row' or 'block'")

    @property
    def mixture(self) -> bool:
        """Return whether there is a choice of formats."""
        return len(self.formats) > 1

    @property
    def independent_of_batch(self) -> bool:
        """Return whether a row's numbers do not depend on the other rows, for given formats."""
        by_row = self.granularity == "row" or (self.granularity == "block" and self.block[0] == 1)
        if self.formats == (BF16.name,) or self.scale == "const":
            return True
        return by_row and (self.scale == "amax" or (self.scale == "gam" and self.group == "row"))


@dataclass(frozen=True)
class GemmConfig:
    """How one product is computed."""

    operands: str = "quantised"
    """quantised (as their configs say) or bf16 (rounded to BF16; what was saved in fewer bits stays as it was)."""
    fast_accum: bool = False
    """Let Hopper accumulate in about 14 bits (scaled_mm only)."""

    def __post_init__(self) -> None:
        _choice("operands", self.operands, ("quantised", "bf16"))


@dataclass(frozen=True)
class Rule:
    """Which layers, by qualified name, are computed how."""

    pattern: str
    """Of names, with * and ?."""
    precision: str
    """recipe (as the recipe says), bf16, or fp32 (left as it is)."""
    reason: str = ""
    """For the report."""
    max_outputs: int | None = None
    """Only layers of at most so many outputs."""

    def __post_init__(self) -> None:
        _choice("precision of a rule", self.precision, ("recipe", "bf16", "fp32"))

    def matches(self, name: str, outputs: int) -> bool:
        """Return whether the rule is about a layer of this name and number of outputs."""
        return fnmatchcase(name, self.pattern) and (self.max_outputs is None or outputs <= self.max_outputs)


RULES = (
    Rule("*", "fp32", "read-out: one output", max_outputs=1),
    Rule("*decoder.layers.2", "fp32", "read-out"),
    Rule("output", "fp32", "read-out"),
    Rule("*.output", "fp32", "read-out"),
    Rule("encoder*", "fp32", "reads observations"),
    Rule("*.encoder*", "fp32", "reads observations"),
    Rule("hidden.layers.0", "fp32", "reads observations"),
    Rule("*.hidden.layers.0", "fp32", "reads observations"),
    Rule("*update*", "recipe", "update"),
    Rule("*message*", "recipe", "message"),
    Rule("*decoder*", "recipe", "decoder"),
    Rule("*hidden*", "recipe", "hidden layer"),
)
"""The first that matches decides; a layer that none matches is computed in BF16."""


@dataclass(frozen=True)
class MixtureConfig:
    """When a mixture chooses its formats."""

    choice: str = "cached"
    """cached (one format an operand, changed between updates) or immediate (for every tensor or block by itself)."""
    rows: int = 4096
    """Rows of which cached measures the error."""
    promote_below: float = 0.9
    """Fraction of a threshold below which a check speaks for the better format."""
    promote_after: int = 3
    """Checks in a row that it takes to go back to the better format; to a worse one it goes at once."""

    def __post_init__(self) -> None:
        _choice("choice", self.choice, ("cached", "immediate"))
        if self.rows < 1 or self.promote_after < 1 or not 0 < self.promote_below <= 1:
            raise UserError("rows and promote_after are at least 1, promote_below in (0, 1]")


@dataclass(frozen=True)
class DemotionConfig:
    """When a layer goes over to BF16 for good: any of its operands goes beyond any of these."""

    saturation: float = 1e-4
    """Share of numbers beyond the format's largest."""
    rms: float = 16.0
    """Root mean square."""


@dataclass(frozen=True)
class Recipe:
    """A way to compute a network's linear layers."""

    name: str
    x: OperandConfig = field(default_factory=OperandConfig)
    w: OperandConfig = field(default_factory=OperandConfig)
    g: OperandConfig = field(default_factory=lambda: OperandConfig(formats=("e5m2",)))
    output: GemmConfig = field(default_factory=lambda: GemmConfig(fast_accum=True))
    grad_input: GemmConfig = field(default_factory=GemmConfig)
    grad_weight: GemmConfig = field(default_factory=GemmConfig)
    mixture: MixtureConfig = field(default_factory=MixtureConfig)
    rules: tuple[Rule, ...] = RULES
    demotion: DemotionConfig | None = None
    """When layers go over to BF16; None for never."""
    parametrization: str = "any"
    """Networks that it is for: any, or unit (unit-scaled ones)."""
    converts: bool = True
    """Whether layers are replaced at all; fp32 leaves the network as it is."""
    summary: str = ""
    """One line for lists of recipes."""

    def __post_init__(self) -> None:
        _choice("parametrization", self.parametrization, ("any", "unit"))

    def operand(self, name: str) -> OperandConfig:
        """Return the config of x, w or g."""
        return getattr(self, name)  # type: ignore[no-any-return]

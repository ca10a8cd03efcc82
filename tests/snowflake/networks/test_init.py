"""Initial weights: their form, where they come from, and what the shared seed shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph
from snowflake.networks import Actor, NerveNetActor, Network, build_actor, build_critic

NETWORKS = (
    (build_actor, {"network": "nervenet"}),
    (build_actor, {"network": "mlp"}),
    (build_critic, {"critic": "flat"}),
    (build_critic, {"critic": "graph"}),
)


def matrices(network: Network) -> Iterator[Tensor]:
    """Yield every matrix of the graph network as the papers count them: the GRU's one by one."""
    for name, weight in network.named_parameters():
        if name.endswith("weight"):
            yield from weight.chunk(max(1, weight.shape[0] // weight.shape[1]) if name.startswith("update") else 1)


def test_graph_matrices_are_orthogonal(make_actor: Callable[..., NerveNetActor]) -> None:
    for weight in matrices(make_actor("centipede-6")):
        out, width = weight.shape
        gram = weight.t() @ weight if out >= width else weight @ weight.t()
        torch.testing.assert_close(gram, torch.eye(min(out, width)), atol=1e-5, rtol=0)


def test_biases_and_table(make_actor: Callable[..., NerveNetActor]) -> None:
    actor = make_actor("centipede-6")
    biases = {name: p for name, p in actor.named_parameters() if name.endswith("bias")}
    assert len(biases) == 2 + 3 + 2 + 3
    for name, bias in biases.items():
        assert torch.all(bias == (0.0 if name.startswith("update") else 0.01)), name
    torch.testing.assert_close(actor.encoder.table.norm(dim=0), torch.ones(32))


def test_first_means_have_the_published_spread(
    make_actor: Callable[..., NerveNetActor], observations: Callable[..., Tensor]
) -> None:
    """An orthogonal output layer leaves the first mean actions a spread of about 0.16, not 0."""
    spread = []
    for seed in range(5):
        actor = make_actor("centipede-6", seed=seed)
        spread.append(actor.distribution(observations(actor.graphs[0], 200, seed), 0)[0].std().item())
    assert 0.08 < sum(spread) / len(spread) < 0.25


def test_flat_weights_have_unit_rows_and_a_small_output(graph_of: Callable[[str], MorphologyGraph]) -> None:
    graph = graph_of("centipede-6")
    for network in (
        build_actor([graph], PolicyConfig(network="mlp"), torch.Generator().manual_seed(0)),
        build_critic([graph], PolicyConfig(), torch.Generator().manual_seed(0)),
    ):
        for name, p in network.named_parameters():
            if name.endswith("weight"):
                norm = 0.01 if name.startswith("output") else 1.0
                torch.testing.assert_close(p.norm(dim=1), torch.full((len(p),), norm))
            elif name.endswith("bias"):
                assert torch.all(p == 0)


@pytest.mark.parametrize(("build", "config"), NETWORKS)
def test_weights_come_from_the_generator_alone(
    build: Callable[..., Network], config: dict[str, str], graph_of: Callable[[str], MorphologyGraph]
) -> None:
    before = torch.get_rng_state()

    def flat(seed: int) -> Tensor:
        network = build([graph_of("centipede-4")], PolicyConfig(**config), torch.Generator().manual_seed(seed))
        return torch.nn.utils.parameters_to_vector(network.parameters())

    assert torch.equal(flat(1), flat(1))
    assert not torch.equal(flat(1), flat(2))
    assert torch.isfinite(flat(1)).all()
    assert torch.equal(torch.get_rng_state(), before)


def test_shared_seed_makes_all_matrices_of_one_shape_equal_in_every_run(
    make_actor: Callable[..., NerveNetActor],
) -> None:
    first, second = (list(matrices(make_actor("centipede-6", seed=s, init="shared_seed"))) for s in (0, 1))
    square = [weight for weight in (*first, *second) if weight.shape == (64, 64)]
    assert len(square) == 2 * 17
    assert all(torch.equal(weight, square[0]) for weight in square)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_independent_matrices_differ(make_actor: Callable[..., NerveNetActor]) -> None:
    square = [weight for weight in matrices(make_actor("centipede-6")) if weight.shape == (64, 64)]
    assert len({weight.detach().numpy().tobytes() for weight in square}) == 17


def test_table_follows_the_seed_even_if_matrices_are_shared(make_actor: Callable[..., NerveNetActor]) -> None:
    first, second = (make_actor("centipede-6", seed=s, init="shared_seed") for s in (0, 1))
    differing = [
        n for (n, p), q in zip(first.named_parameters(), second.parameters(), strict=True) if not torch.equal(p, q)
    ]
    assert differing == ["encoder.table"]
    assert isinstance(first, Actor)

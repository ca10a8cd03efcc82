"""A memory computes the same step by step and as a whole, and an episode sees nothing of the one before."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import agents
from envs.observation import paper_layout
from snowflake.config.policy import PolicyConfig
from snowflake.graph import MorphologyGraph, build_graph
from snowflake.networks.init import Initializer
from snowflake.networks.memory import NodeMemory, Past, State
from snowflake.networks.memory.attention import WindowAttention
from snowflake.networks.memory.gru import GRUMemory
from snowflake.networks.memory.past import positions
from snowflake.networks.memory.rotary import rotate

ENVS, STEPS, WINDOW = 3, 40, 5


def graph_of(name: str = "centipede-4") -> MorphologyGraph:
    morphology = agents.load(name)
    model = morphology.compile()
    return build_graph(model, paper_layout(model), morphology.node_class(model), name)


GRAPH = graph_of()


def make_memory(**config: Any) -> NodeMemory:
    """A memory of centipede-4 in float64 whose output is not zero, and whose norms are not the identity."""
    generator = torch.Generator().manual_seed(0)
    policy = PolicyConfig(**({"memory_width": 8, "memory_window": WINDOW, "hidden_size": 6} | config))
    memory = NodeMemory([GRAPH], policy, 7, 3, Initializer("independent", generator)).double()
    with torch.no_grad():
        memory.output.weight.normal_(generator=generator)
        for parameter in memory.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return memory


class Data(NamedTuple):
    """Root (T, N, 7), joints (T, V - 1, N, 3), actions (T, N, A), starts (T, N) of episodes of different lengths."""

    root: Tensor
    joint: Tensor
    actions: Tensor
    starts: Tensor


def draw(seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    root, joint, actions = (
        torch.randn(STEPS, *shape, generator=generator).double()
        for shape in ((ENVS, 7), (GRAPH.num_nodes - 1, ENVS, 3), (ENVS, GRAPH.act_dim))
    )
    starts = torch.rand(STEPS, ENVS, generator=generator) < 0.08
    starts[0], starts[16:25, 0] = True, False
    return Data(root, joint, actions, starts)


def act(memory: NodeMemory, data: Data, steps: int = STEPS) -> tuple[Tensor, State]:
    """Outputs (steps, V or 1, N, H) of the first steps, one by one, and the state after them."""
    state, outputs = memory.initial_state(ENVS), []
    with torch.no_grad():
        for t in range(steps):
            past = Past.now(state, data.starts[t])
            outputs.append(memory(data.root[t], data.joint[t], past, 0))
            past.done(data.actions[t])
    return torch.stack(outputs), state


def replay(memory: NodeMemory, data: Data, state: State, first: int = 0) -> Tensor:
    """Outputs of the steps from the first on as one sequence, as an update computes them."""
    root, joint, actions, starts = (part[first:] for part in data)
    before = torch.cat([state["action"][None], actions[:-1].clamp(-1, 1)]).masked_fill(starts[..., None], 0.0)
    whole = memory(root.flatten(0, 1), joint.transpose(0, 1).flatten(1, 2), Past(state, starts, before), 0)
    return whole.unflatten(1, starts.shape).transpose(0, 1)


SPARQ = {"memory": "window", "sparq": "rollout", "sparq_min_bytes": 0, "sparq_k": 3, "sparq_r": 2}
KINDS: list[dict[str, Any]] = [
    {"memory": "gru"},
    {"memory": "gru", "memory_scope": "body"},
    *(
        {"memory": "window", "memory_norm": norm, "memory_softcap": cap, "memory_layers": 2}
        for norm, cap in itertools.product(("none", "qk", "qkv"), (0.0, 1.5))
    ),
    {"memory": "window", "memory_scope": "body", "memory_layers": 3},
    {"memory": "window", "memory_heads": 4, "memory_kv_heads": 2},
    {"memory": "window", "memory_window": 1},
    SPARQ,
    SPARQ | {"sparq_layout": "single", "sparq_reallocate": False, "memory_softcap": 2.0},
    SPARQ | {"memory_heads": 2, "memory_kv_heads": 1, "memory_layers": 2},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_sequence_is_what_the_steps_were(kind: dict[str, Any]) -> None:
    """From the beginning; from the middle of episodes after the ring has wrapped; and not without what was before."""
    memory, data, middle = make_memory(**kind), draw(), 24
    stepwise, _ = act(memory, data)
    torch.testing.assert_close(replay(memory, data, memory.initial_state(ENVS)), stepwise, rtol=0, atol=1e-10)
    _, state = act(memory, data, middle)
    assert state["clock"].max() > WINDOW
    torch.testing.assert_close(replay(memory, data, state, middle), stepwise[middle:], rtol=0, atol=1e-10)
    if kind.get("memory_window") != 1:  # a window of one step has no past but the action
        forgot = memory.initial_state(ENVS) | {"action": state["action"]}
        assert (replay(memory, data, forgot, middle) - stepwise[middle:]).abs().max() > 1e-2


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[4], SPARQ], ids=str)
def test_nothing_leaks_from_one_episode_or_environment_to_another(kind: dict[str, Any]) -> None:
    memory, data = make_memory(**kind), draw()
    data.starts[:, 0] = False
    data.starts[0] = data.starts[20, 0] = True
    before, _ = act(memory, data)
    other = data._replace(root=data.root.clone(), actions=data.actions.clone())
    other.root[:20, 0] += 1.0
    other.actions[:20, 0] += 1.0
    after, _ = act(memory, other)
    assert torch.equal(after[20:], before[20:])  # the next episode
    assert torch.equal(after[:, :, 1:], before[:, :, 1:])  # the other environments
    assert not torch.allclose(after[:20, :, 0], before[:20, :, 0])
    # Negative control: without the start, the first episode reaches into the second.
    other.starts[20, 0] = data.starts[20, 0] = False
    assert (act(memory, other)[0] - act(memory, data)[0])[20, :, 0].abs().max() > 1e-3


def test_a_window_longer_than_the_run_hides_nothing_and_a_shorter_one_forgets() -> None:
    data = draw()
    data.starts[1:] = False
    long, longer, short = (make_memory(memory="window", memory_window=w) for w in (STEPS, 3 * STEPS, WINDOW))
    torch.testing.assert_close(act(long, data)[0], act(longer, data)[0], rtol=0, atol=1e-12)
    other = data._replace(root=data.root.clone(), joint=data.joint.clone())
    other.root[0] += 1.0
    assert (act(long, other)[0] - act(long, data)[0])[-1].abs().max() > 1e-6
    difference = (act(short, other)[0] - act(short, data)[0]).abs().amax(dim=(1, 2, 3))
    assert (difference[:WINDOW] > 0).all()
    assert (difference[WINDOW:] == 0).all()


def test_gradients_do_not_reach_what_was_before() -> None:
    data = draw()
    for kind in ({"memory": "window"}, SPARQ):
        memory = make_memory(**kind)
        _, state = act(memory, data, 24)
        for tensor in state.values():
            if tensor.is_floating_point():
                tensor.requires_grad_()
        replay(memory, data, state, 24).square().sum().backward()
        assert all(t.grad is None for name, t in state.items() if name.startswith(("keys", "values", "sum")))
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in memory.parameters())


def test_positions_count_from_the_start_of_the_episode() -> None:
    starts = torch.tensor([[0, 1], [0, 0], [1, 0], [0, 1], [0, 1]]).bool()
    assert positions(torch.tensor([7, 9]), starts).tolist() == [[7, 0], [8, 1], [0, 2], [1, 0], [2, 0]]


def test_rotated_products_depend_on_the_distance_alone() -> None:
    q, k = torch.randn(2, 8, generator=torch.Generator().manual_seed(0)).double()
    products = [rotate(q, torch.tensor(t + 3)) @ rotate(k, torch.tensor(t)) for t in (0, 5, 400)]
    torch.testing.assert_close(products[1:], [products[0]] * 2, rtol=0, atol=1e-10)
    angle = torch.tensor(2.0).double()
    by_hand = [math.cos(2.0), math.sin(2.0)]  # of (1, 0), its only pair turning by one radian a step
    torch.testing.assert_close(rotate(torch.tensor([1.0, 0.0]).double(), angle), torch.tensor(by_hand).double())


def test_one_layer_equals_a_loop_in_plain_python() -> None:
    """Two heads, window 3, no norm: weights exp(q k / sqrt d) / sum over the last three steps."""
    config = PolicyConfig(memory="window", memory_width=4, memory_window=3, memory_norm="none")
    layer = WindowAttention(config, 0, Initializer("independent", torch.Generator().manual_seed(0))).double()
    x = torch.randn(6, 1, 1, 4, generator=torch.Generator().manual_seed(1)).double()
    rows = layer.projection.weight.tolist()
    expected, history = [], []
    for t in range(6):
        qkv = [sum(w * v for w, v in zip(row, x[t, 0, 0].tolist(), strict=True)) for row in rows]
        turn = lambda a, b, p: [a * math.cos(p) - b * math.sin(p), b * math.cos(p) + a * math.sin(p)]  # noqa: E731
        heads = [(turn(*qkv[2 * h : 2 * h + 2], t), turn(*qkv[4 + 2 * h : 6 + 2 * h], t), qkv[8 + 2 * h : 10 + 2 * h])
                 for h in range(2)]  # fmt: skip
        history.append(heads)
        joined = []
        for h in range(2):
            seen = [past[h] for past in history[-3:]]
            weights = [
                math.exp(sum(a * b for a, b in zip(heads[h][0], key, strict=True)) / math.sqrt(2)) for _, key, _ in seen
            ]
            joined += [
                sum(w * v[i] for w, (_, _, v) in zip(weights, seen, strict=True)) / sum(weights) for i in range(2)
            ]
        expected.append(joined)
    state = {"clock": torch.zeros(1, dtype=torch.long), **layer.initial_state(1, 1, sparse=False)}
    for t in range(6):
        with torch.no_grad():
            out = layer.step(x[t], state)
        state["clock"] += 1
        torch.testing.assert_close(
            out[0, 0], layer.output(torch.tensor(expected[t], dtype=torch.float64)), rtol=0, atol=1e-10
        )


def test_gru_agrees_with_torch() -> None:
    """`torch.nn.GRU` orders its gates reset, update, candidate."""
    config = PolicyConfig(memory="gru", memory_width=6)
    memory = GRUMemory(config, Initializer("independent", torch.Generator().manual_seed(0))).double()
    reference = torch.nn.GRU(6, 6).double()
    with torch.no_grad():
        for name, layer in (("ih", memory.inputs), ("hh", memory.recurrent)):
            for kind in ("weight", "bias"):
                update, reset, candidate = getattr(layer, kind).chunk(3)
                getattr(reference, f"{kind}_{name}_l0").copy_(torch.cat([reset, update, candidate]))
    x = torch.randn(9, 2, 5, 6, generator=torch.Generator().manual_seed(1)).double()
    starts = torch.zeros(9, 2, dtype=torch.bool)
    got = memory.sequence(x, Past(memory.initial_state(2, 5, False), starts, torch.zeros(9, 2, 0)))
    torch.testing.assert_close(got.flatten(1, 2), reference(x.flatten(1, 2))[0], rtol=0, atol=1e-10)


def test_padding_of_a_smaller_body_changes_nothing() -> None:
    policy = PolicyConfig(memory="window", memory_width=8, memory_window=WINDOW, hidden_size=6)
    graphs = [GRAPH, graph_of("centipede-6")]
    both = NodeMemory(graphs, policy, 7, 3, Initializer("independent", torch.Generator().manual_seed(0))).double()
    alone = NodeMemory(graphs[:1], policy, 7, 3, Initializer("independent", torch.Generator().manual_seed(0))).double()
    with torch.no_grad():
        both.output.weight.normal_()
    alone.load_state_dict(both.state_dict(), strict=True)
    data = draw()
    wide = data._replace(
        actions=torch.nn.functional.pad(data.actions, (0, graphs[1].act_dim - GRAPH.act_dim), value=9.0)
    )
    torch.testing.assert_close(act(both, wide)[0], act(alone, data)[0], rtol=0, atol=1e-12)

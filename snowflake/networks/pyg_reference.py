"""The graph policy in PyTorch Geometric: the reference for the dense one, and a place for other convolutions.

Imports PyTorch Geometric, so nothing on the training path imports this module.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from snowflake.graph import JOINT_NODE, ROOT_NODE
from snowflake.networks.message_layer import ConvMessage
from snowflake.networks.mlp import MLP
from snowflake.networks.nervenet import GRUUpdate, NerveNetActor
from snowflake.networks.normalizer import CLIP, EPSILON, MIN_VARIANCE, RunningNorm, SlotNorm


class NerveNetConv(MessagePassing):
    r"""One round of NerveNet (`Wang et al. 2018 <https://openreview.net/forum?id=S1sqHMZCb>`_).

    .. math::
        \mathbf{x}^{\prime}_i = \mathrm{GRU}_{\mathrm{type}(i)} \left( \mathrm{mean}_{j \in \mathcal{N}(i)}
        M(\mathbf{x}_j), \mathbf{x}_i \right)

    Args:
        actor: the dense actor whose parameters are used, not copied.

    Shapes:
        - **input:** node states (V, H), edge indices (2, E), node types (V,)
        - **output:** node states (V, H)
    """

    def __init__(self, actor: NerveNetActor) -> None:
        super().__init__(aggr=actor.config.aggregation)
        self.mlp = actor.message
        self.root = actor.update.root
        self.joint = actor.update.joint

    def forward(self, x: Tensor, edge_index: Tensor, node_type: Tensor) -> Tensor:
        """Send, aggregate and update."""
        if isinstance(self.mlp, ConvMessage):  # which sends and aggregates by itself
            message = self.mlp.conv(x, edge_index)
        else:
            message = self.propagate(edge_index, x=x)
        updated = torch.empty_like(x)
        for kind, gru in ((ROOT_NODE, self.root), (JOINT_NODE, self.joint)):
            assert isinstance(gru, GRUUpdate), "the reference knows this form of the update only"
            mask = node_type == kind
            updated[mask] = _gru(gru, message[mask], x[mask])
        return updated

    def message(self, x_j: Tensor) -> Tensor:
        """Return the messages along all edges (E, H)."""
        return _mlp(cast(MLP, self.mlp), x_j)


class PyGActor(nn.Module):
    """The mean action of a `NerveNetActor`, computed with PyTorch Geometric from the actor's own parameters.

    Args:
        actor: the dense actor. Its parameters are shared.
        conv: a convolution with `forward(x, edge_index)` from H to H features, for instance
            `torch_geometric.nn.GCNConv(64, 64)`, to take the place of message and update in every round.
    """

    def __init__(self, actor: NerveNetActor, conv: nn.Module | None = None) -> None:
        super().__init__()
        self.actor = actor
        self.conv = NerveNetConv(actor) if conv is None else conv

    def forward(self, data: Data) -> Tensor:
        """Return the mean action of every actuator.

        Args:
            data: from `MorphologyGraph.to_data(obs)`, or a `Batch` of them, of one body or of several.

        Returns:
            (A,) in actuator order; for a batch, the graphs' actuators one after the other.
        """
        x = self.encode(data)
        for _ in range(self.actor.config.propagation_steps):
            x = self.conv(x, data.edge_index, *self._types(data))
        if "attachment_index" in data:
            return _mlp(self.actor.decoder, _read_out(x, data)).squeeze(-1)
        output = data.output_index
        if self.actor.config.actuator_wiring == "official":
            output = output.sort().values  # graphs of a batch follow each other, so this sorts within each
        return _mlp(self.actor.decoder, x[output]).squeeze(-1)

    def log_std(self, data: Data) -> Tensor:
        """Return the log standard deviation that belongs to each entry of `forward`, for `log_std: per_class`."""
        return self.actor.log_std[data.node_class[data.output_index]]

    def encode(self, data: Data) -> Tensor:
        """Return the first node states (V, H)."""
        encoder, normalizer = self.actor.encoder, self.actor.normalizer
        root, joint = data.node_type == ROOT_NODE, data.node_type == JOINT_NODE
        inputs = data.x_root.new_empty(data.num_nodes, encoder.root.out_features)
        x_root = _normalise(normalizer.root, data.x_root, data.node_class[root])
        x_joint = _normalise(normalizer.joint, data.x_joint, data.node_class[joint])
        if "static_root" in data:
            x_root = torch.cat([torch.where(data.mask_root, x_root, 0.0), data.static_root], dim=-1)
            x_joint = torch.cat([torch.where(data.mask_joint, x_joint, 0.0), data.static_joint], dim=-1)
        inputs[root], inputs[joint] = torch.tanh(encoder.root(x_root)), torch.tanh(encoder.joint(x_joint))
        return torch.cat([encoder.table[data.node_class], inputs], dim=-1)

    def _types(self, data: Data) -> tuple[Any, ...]:
        return (data.node_type,) if isinstance(self.conv, NerveNetConv) else ()


def _mlp(mlp: MLP, x: Tensor) -> Tensor:
    for i, layer in enumerate(mlp.layers):
        x = layer(x)
        if mlp.final_tanh or i + 1 < len(mlp.layers):
            x = torch.tanh(x)
    return x


def _gru(gru: nn.Module, message: Tensor, state: Tensor) -> Tensor:
    """The update written out, matrix by matrix, independent of `GRUUpdate.forward`."""
    if not isinstance(gru, GRUUpdate):
        raise NotImplementedError("the reference has the update of policy.gru reset_before only")
    w_keep, w_reset, w_candidate = gru.message.weight.chunk(3)
    b_keep, b_reset, b_candidate = gru.message.bias.chunk(3)
    u_keep, u_reset = gru.gates.weight.chunk(2)
    keep = torch.sigmoid(message @ w_keep.t() + state @ u_keep.t() + b_keep)
    reset = torch.sigmoid(message @ w_reset.t() + state @ u_reset.t() + b_reset)
    candidate = torch.tanh(message @ w_candidate.t() + (reset * state) @ gru.candidate.weight.t() + b_candidate)
    return keep * state + (1 - keep) * candidate


def _read_out(x: Tensor, data: Data) -> Tensor:
    """Return the decoder's inputs under `general`, summed pair by pair of a control and a node."""
    count = data.attachment_count
    control = torch.repeat_interleave(torch.arange(len(count), device=x.device), count)
    nodes = x[data.attachment_index]
    zeros = x.new_zeros(len(count), x.shape[-1])
    mean = zeros.index_add(0, control, nodes / count[control, None])
    signed = zeros.index_add(0, control, nodes * data.attachment_weight[:, None].to(x.dtype))
    return torch.cat([mean, signed, data.static_actuator, data.x_actuator], dim=-1)


def _normalise(norm: RunningNorm | SlotNorm, x: Tensor, group: Tensor) -> Tensor:
    mean, var, seen = norm.mean[group], norm.var[group], norm.count[group] > 0
    scaled = ((x - mean) / (var.clamp(min=MIN_VARIANCE) + EPSILON).sqrt()).clamp(-CLIP, CLIP).to(x.dtype)
    if isinstance(norm, SlotNorm):  # seen feature by feature; clipped even before
        return torch.where(seen, scaled, x.clamp(-CLIP, CLIP))
    return torch.where(seen[:, None], scaled, x)

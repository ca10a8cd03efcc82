"""The speed baseline: what a competent user of the usual libraries would write for the same training step.

    .venv/bin/python benchmarks/baseline_sb3_pyg.py --body centipede-6 --envs 8

Stable-Baselines3's PPO, one process an environment, NerveNet's message passing in PyTorch Geometric; batch, minibatch,
epochs, rounds and widths are those of the package's defaults, and the physics is the package's model of the body. Less
is done than in the package: observations are not normalised, there is no node-class table, and one GRU serves all
nodes. Prints one line of JSON: environment steps per second of whole training steps after a warm-up.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from typing import Any

import gymnasium
import mujoco
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import SubprocVecEnv
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

import envs

BATCH, MINIBATCH, EPOCHS, ROUNDS, HIDDEN = 2048, 256, 10, 4, 64
TIME_LIMIT = 1000


class Robot(gymnasium.Env):
    """A robot that is rewarded for running along x: positions, velocities and contact forces in, torques out."""

    def __init__(self, body: str) -> None:
        (ours,) = envs.make_vector_env([body], 1).body_envs
        self.model, self.frame_skip = ours.model, round(ours.dt / ours.model.opt.timestep)
        classes = ours.morphology.node_class(ours.model)
        spine = [j for j, name in enumerate(classes) if name in ("root", "body")] if classes else [0]
        ours.close()
        self.spine = self.model.jnt_bodyid[spine]
        self.data = mujoco.MjData(self.model)
        mujoco.mj_forward(self.model, self.data)
        height = self.data.xpos[self.spine[0], 2]
        self.low, self.high = 0.47 * height, 1.53 * height
        self.cost = 2.0 / self.model.nu
        size = self.model.nq - 2 + self.model.nv + 6 * self.model.nbody
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (self.model.nu,), np.float32)
        self.steps = 0

    def _observe(self, contacts: np.ndarray) -> np.ndarray:
        return np.concatenate([self.data.qpos[2:], self.data.qvel, contacts], dtype=np.float32, casting="same_kind")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos += self.np_random.uniform(-0.02, 0.02, self.model.nq)
        self.data.qvel += self.np_random.normal(0.0, 0.05, self.model.nv)
        mujoco.mj_forward(self.model, self.data)
        self.steps = 0
        return self._observe(np.zeros(6 * self.model.nbody)), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        data, front = self.data, self.spine[-1]
        before = data.xpos[front, 0]
        data.ctrl[:] = action
        mujoco.mj_step(self.model, data, self.frame_skip)
        mujoco.mj_rnePostConstraint(self.model, data)
        self.steps += 1
        contacts = np.clip(data.cfrc_ext, -1.0, 1.0).ravel()
        speed = (data.xpos[front, 0] - before) / (self.frame_skip * self.model.opt.timestep)
        reward = speed + 1.0 - self.cost * np.square(action).sum() - 1e-3 * self.cost * np.square(contacts).sum()
        place = data.xpos[self.spine]
        upright = (place[:, 2] > self.low).all() and (place[:, 2] < self.high).all()
        fallen = not (upright and (np.abs(np.diff(place[:, 1])) < 0.45).all() and np.isfinite(data.qpos).all())
        return self._observe(contacts), float(reward), fallen, self.steps >= TIME_LIMIT, {}


def graph_of(model: mujoco.MjModel) -> dict[str, Any]:
    """Return nodes (the root and every joint), edges along the tree, columns of the observation, driven nodes."""
    joints = [j for j in range(model.njnt) if model.jnt_type[j] != mujoco.mjtJoint.mjJNT_FREE]
    node_of = {j: k for k, j in enumerate(joints, 1)}
    last_node = {0: 0}  # by body
    if len(joints) < model.njnt:
        last_node[int(model.jnt_bodyid[0])] = 0
    edges, columns = [], []
    speeds, contacts = model.nq - 2, model.nq - 2 + model.nv
    for j, k in node_of.items():
        body = int(model.jnt_bodyid[j])
        above = body if body in last_node else int(model.body_parentid[body])
        while above not in last_node:
            above = int(model.body_parentid[above])
        edges += [(last_node[above], k), (k, last_node[above])]
        last_node[body] = k
        forces = range(contacts + 6 * body, contacts + 6 * body + 6)
        columns.append([max(int(model.jnt_qposadr[j]) - 2, 0), speeds + int(model.jnt_dofadr[j]), *forces])
    driven = [node_of[int(model.actuator_trnid[a, 0])] for a in range(model.nu)]
    return {"edges": edges, "columns": columns, "driven": driven, "nodes": len(joints) + 1}


class Propagation(MessagePassing):
    """One round: a three-layer message along every edge, their mean, and a GRU."""

    def __init__(self) -> None:
        super().__init__(aggr="mean")
        self.net = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(HIDDEN, HIDDEN), nn.Tanh())))
        self.gru = nn.GRUCell(HIDDEN, HIDDEN)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.gru(self.propagate(edge_index, x=x), x)

    def message(self, x_j: Tensor) -> Tensor:
        return self.net(x_j)


class NerveNet(nn.Module):
    """Encoder, rounds of messages on the disjoint union of a batch's graphs, decoder at the driven nodes."""

    def __init__(self, edges: list[Any], columns: list[Any], driven: list[int], nodes: int) -> None:
        super().__init__()
        self.register_buffer("edges", torch.tensor(edges).t().contiguous())
        self.register_buffer("columns", torch.tensor(columns))
        self.register_buffer("driven", torch.tensor(driven))
        self.nodes, self.root_size = nodes, 17
        self.root, self.joint = nn.Linear(self.root_size, HIDDEN), nn.Linear(8, HIDDEN)
        self.round = Propagation()
        layers = (nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
        self.decoder = nn.Sequential(*layers)

    def forward(self, obs: Tensor) -> Tensor:
        batch = len(obs)
        root = torch.tanh(self.root(obs[:, None, : self.root_size]))
        x = torch.cat([root, torch.tanh(self.joint(obs[:, self.columns]))], dim=1).reshape(-1, HIDDEN)
        offset = torch.arange(batch, device=obs.device).mul_(self.nodes).repeat_interleave(self.edges.shape[1])
        edge_index = self.edges.repeat(1, batch) + offset
        for _ in range(ROUNDS):
            x = self.round(x, edge_index)
        return self.decoder(x.view(batch, self.nodes, HIDDEN)[:, self.driven]).squeeze(-1)


class GraphPolicy(ActorCriticPolicy):
    """NerveNet for the actions, a flat network for the value."""

    def __init__(self, *args: Any, graph: dict[str, Any], **kwargs: Any) -> None:
        self.graph = graph
        super().__init__(*args, ortho_init=False, **kwargs)

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.actor = NerveNet(**self.graph)
        inputs = self.observation_space.shape[0]
        self.critic = nn.Sequential(
            nn.Linear(inputs, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1)
        )
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    def get_distribution(self, obs: Tensor) -> Any:
        return self.action_dist.proba_distribution(self.actor(obs), self.log_std)

    def forward(self, obs: Tensor, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        distribution = self.get_distribution(obs)
        actions = distribution.get_actions(deterministic)
        return actions, self.critic(obs), distribution.log_prob(actions)

    def evaluate_actions(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        distribution = self.get_distribution(obs)
        return self.critic(obs), distribution.log_prob(actions), distribution.entropy()

    def predict_values(self, obs: Tensor) -> Tensor:
        return self.critic(obs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--body", default="centipede-6")
    parser.add_argument("--envs", type=int, default=8, help="processes, a divisor of 2048")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=2 * BATCH, help="environment steps to measure")
    parser.add_argument("--serve", action="store_true", help="measure one training step for every line of input")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    env = SubprocVecEnv([partial(Robot, arguments.body)] * arguments.envs, start_method="fork")
    algorithm = PPO(
        GraphPolicy,
        env,
        n_steps=BATCH // arguments.envs,
        batch_size=MINIBATCH,
        n_epochs=EPOCHS,
        policy_kwargs={"graph": graph_of(Robot(arguments.body).model)},
        device=arguments.device,
    )
    algorithm.learn(BATCH)
    steps = BATCH if arguments.serve else arguments.steps
    if arguments.serve:
        print(json.dumps({"ready": arguments.envs}), flush=True)
    for _ in sys.stdin if arguments.serve else (None,):
        start = time.perf_counter()
        algorithm.learn(steps, reset_num_timesteps=False)
        rate = steps / (time.perf_counter() - start)
        print(json.dumps({"body": arguments.body, "steps_per_second": rate, "envs": arguments.envs}), flush=True)
    env.close()


if __name__ == "__main__":
    main()

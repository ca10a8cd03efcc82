"""Mistakes that a config shows are told before torch is imported, which takes seconds."""

from __future__ import annotations

import json
import subprocess
import sys

TWO = ("train", "--agents", "centipede-4", "centipede-6")
TUNE = ("finetune", "pretrained:centipede-6", "--agents")
CASES = (
    (("train", "--network", "nervnet"), "policy.network = 'nervnet' is not a choice: did you mean 'nervenet'"),
    (("train", "--critic", "grpah"), "policy.critic = 'grpah' is not a choice: did you mean 'graph'"),
    (("train", "--batch-size", "5000"), "ppo.batch_size = 5000 exceeds the rollout of 2048 transitions"),
    (("train", "--message-layer", "GATv2"), "not a convolution of torch_geometric.nn: did you mean 'GATv2Conv'"),
    (("train", "--freeze", "decodr"), "policy.freeze names 'decodr', which nervenet has not: did you mean 'decoder'"),
    (("train", "--method", "mlp", "--freeze", "decoder"), "which mlp has not: choose from hidden, output, log_std"),
    (("train", "--critic", "graph", "--freeze-critic", "hidden"), "policy.freeze_critic names 'hidden'"),
    (("train", "--weight-decay", "1", "--weight-decay-components", "x"), "ppo.weight_decay_components names 'x'"),
    (("train", "--device", "nix"), "device = 'nix' is not a device: use auto, cpu, cuda or cuda:N"),
    (("resume", "nowhere", "--device", "cuda:x"), "device = 'cuda:x' is not a device"),
    (("train", "--on-non-finite", "nix"), "ppo.on_non_finite = 'nix' is not a choice"),
    (("train", "--run", "/proc/x"), "cannot make run folder /proc/x"),
    ((*TWO, "--log-std", "per_actuator"), "policy.log_std = 'per_actuator' serves one body, not centipede-4, cent"),
    ((*TWO, "--critic", "flat"), "policy.critic = 'flat' serves one body"),
    (
        (*TWO, "--method", "mlp"),
        "policy.network = 'mlp' serves one body, not centipede-4, centipede-6: choose --method",
    ),
    ((*TWO, "--method", "official"), "serves one body, not centipede-4, centipede-6: choose --log-std per_class"),
    ((*TUNE, "centipede-8", "--train", "nix"), "--train nix: choose from all, same, encoder"),
    ((*TUNE, "centipede-8", "--critic", "nix"), "policy.critic = 'nix' is not a choice"),
    ((*TUNE, "centipede-8", "--reset-log-std", "nan"), "--reset-log-std nan: must lie between -20 and 2"),
    ((*TUNE, "centipede-8", "--total-timesteps", "1e3"), "the critic's warm-up alone takes 10240 steps"),
    ((*TUNE, "centipede-8", "--run", "/proc/x"), "cannot make run folder /proc/x"),
    ((*TUNE, "ant", "--total-timesteps", "1e3"), "a policy of 'centipede-6' has node types root"),
)


def test_mistakes_are_told_before_torch_is_loaded() -> None:
    script = """
import json, sys
from snowflake.cli import main
for argv in json.load(sys.stdin):
    code, heavy = main(argv), {"torch", "torch_geometric", "stable_baselines3"} & set(sys.modules)
    assert code == 2 and not heavy, (argv, code, heavy)
"""
    asked = json.dumps([argv for argv, _ in CASES])
    done = subprocess.run([sys.executable, "-c", script], input=asked, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    assert done.returncode == 0, done.stderr
    assert len(lines) == len(CASES)
    for line, (argv, words) in zip(lines, CASES, strict=True):
        assert line.startswith("snowflake: error: "), argv
        assert words in line, argv

"""The attention section: numbers in words, refusals in one line, and what presets and variants stand for."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import pytest

from agents.errors import UserError
from snowflake.cli.train import parse_train
from snowflake.config import PolicyConfig, TrainConfig, files, loader
from snowflake.config.attention import AttentionConfig
from snowflake.config.attention_presets import PRESETS, VARIANTS, expand
from snowflake.config.networks import check_networks

TRANSFORMER = {"network": "transformer"}


def test_numbers_in_words() -> None:
    plain = AttentionConfig()
    assert (plain.cap(32), plain.temperature, plain.clip, plain.layer_scale) == (0.0, 1.0, None, None)
    assert AttentionConfig(softcap="auto").cap(64) == 16.0
    assert AttentionConfig(softcap="50").cap(64) == 50.0
    assert AttentionConfig(softmax="temp:0.5").temperature == 0.5
    assert AttentionConfig(softmax="clip:1.03,-0.03").clip == (1.03, -0.03)
    assert AttentionConfig(residual="layerscale:1e-4").layer_scale == 1e-4


@pytest.mark.parametrize("norm", ["none", "qk", "qkv"])
def test_the_input_is_normalised_but_for_qkv(norm: str) -> None:
    assert AttentionConfig(norm=norm).normalises_input == (norm != "qkv")
    assert AttentionConfig(norm=norm, pre_norm="on").normalises_input
    assert not AttentionConfig(norm=norm, pre_norm="off").normalises_input


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("norm", "kq"),
        ("out_norm", "fc1"),
        ("softcap", "-1"),
        ("softcap", "nan"),
        ("softcap", "high"),
        ("softmax", "temp:0"),
        ("softmax", "temp:x"),
        ("softmax", "clip:1.03"),
        ("softmax", "clip:0.9,-0.03"),
        ("softmax", "clip:1.03,0.03"),
        ("softmax", "sparse"),
        ("residual", "gate"),
        ("residual", "layerscale:0"),
        ("mask", "soft"),
        ("layers", 0),
        ("max_hops", 0),
        ("position", "laplacian"),
    ],
)
def test_wrong_values_are_one_line_that_names_the_key(key: str, value: object) -> None:
    with pytest.raises(UserError, match=rf"^policy\.attention\.{key} = {re.escape(repr(value))} ") as refusal:
        AttentionConfig(**{key: value})  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)


def test_combinations_that_cannot_be_are_refused() -> None:
    with pytest.raises(UserError, match=r"heads = 3 does not divide policy.hidden_size = 64"):
        PolicyConfig(network="transformer", attention=AttentionConfig(heads=3))
    with pytest.raises(UserError, match=r"no effect with policy.network = 'nervenet': choose --method transformer"):
        PolicyConfig(attention=AttentionConfig(norm="none"))
    PolicyConfig(critic="transformer", attention=AttentionConfig(norm="none"))  # the critic reads it
    with pytest.raises(UserError, match=r"policy.parametrization = 'unit' has no form of the transformer"):
        check_networks(PolicyConfig(network="transformer", parametrization="unit"))
    with pytest.raises(UserError, match=r"policy.message_layer = 'GCNConv' is for graph networks"):
        PolicyConfig(network="transformer", critic="flat", message_layer="GCNConv")
    PolicyConfig(network="transformer", message_layer="GCNConv")  # of the graph critic that several bodies have
    with pytest.raises(UserError, match="per_actuator"):
        PolicyConfig(network="transformer", log_std="per_actuator").check_bodies(["a", "b"])


def test_every_variant_differs_from_every_other_and_from_none_in_what_the_paper_says() -> None:
    configs = {name: AttentionConfig(**settings) for name, settings in VARIANTS.items()}
    assert len(set(configs.values())) == len(configs) == 9
    none = configs["none"]
    changed = {
        name: {f.name for f in dataclasses.fields(config) if getattr(config, f.name) != getattr(none, f.name)}
        for name, config in configs.items()
    }
    assert changed == {
        "none": set(),
        "soft_temp": {"softmax"},
        "soft_cap": {"softcap"},
        "soft_clip": {"softmax"},
        "layerscale": {"residual"},
        "qk": {"norm"},
        "qk_cap": {"norm", "softcap"},
        "qkv": {"norm"},
        "qk_fc": {"norm", "out_norm"},
    }
    assert configs["qk_cap"].cap(16) == 50.0
    assert none.normalises_input
    assert not configs["qkv"].normalises_input


@pytest.mark.parametrize("name", PRESETS)
def test_presets_set_every_key_of_structure_and_stability(name: str) -> None:
    settings = PRESETS[name]["attention"]
    free = {"layers", "heads", "feedforward", "max_hops", "max_positions"}  # sizes; BoT's are the task's
    assert {f.name for f in dataclasses.fields(AttentionConfig)} - free <= set(settings)
    PolicyConfig(**TRANSFORMER, **PRESETS[name] | {"attention": AttentionConfig(**settings)})


def test_what_is_written_out_wins_over_the_variant_and_that_over_the_preset() -> None:
    policy = expand({"preset": "metamorph", "attention": {"variant": "qk_cap", "softcap": 8}})
    assert policy["hidden_size"] == 128
    assert {key: policy["attention"][key] for key in ("position", "norm", "softcap")} == {
        "position": "index",  # of the preset
        "norm": "qk",  # of the variant
        "softcap": "8",  # of the line itself
    }
    assert expand({"preset": "bot_mix"})["attention"]["mask"] == "mix"
    assert expand({"hidden_size": 8}) == {"hidden_size": 8}
    for wrong, key in (({"preset": "bert"}, "policy.preset"), ({"attention": {"variant": "kq"}}, "attention.variant")):
        with pytest.raises(UserError, match=f"{key} = .* is not a choice"):
            expand(wrong)


def test_yaml_command_line_and_saved_config_agree(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("method: transformer\npolicy:\n  preset: modumorph\n  attention: {variant: qkv, layers: 2}\n")
    config = loader.resolve(None, [path])
    attention = config.policy.attention
    assert (config.policy.network, config.policy.hidden_size) == ("transformer", 128)
    assert (attention.qk_source, attention.norm, attention.layers) == ("context", "qkv", 2)
    saved = tmp_path / "saved.yaml"
    saved.write_text(loader.to_yaml(config))
    assert loader.load(saved) == config
    assert "preset" not in saved.read_text()
    assert "variant" not in saved.read_text()

    flags = ["--preset", "modumorph", "--attn-variant", "qkv", "--attn-layers", "2"]
    assert parse_train(["--method", "transformer", *flags])[0].policy == config.policy
    # A flag wins over the variant beside it, even where it says what the default says.
    both = parse_train(["--method", "transformer", "--attn-variant", "qkv", "--attn-norm", "qk"])[0].policy.attention
    assert both == AttentionConfig()
    # The command line wins over a file, whose other settings stay.
    later = parse_train(["--config", str(path), "--attn-variant", "soft_cap"])[0].policy.attention
    assert (later.norm, later.softcap, later.qk_source) == ("none", "50", "context")
    path.write_text("policy:\n  attention: {norms: qk}\n")
    with pytest.raises(UserError, match=r"run.yaml:2: policy.attention.norms is not a key: did you mean"):
        loader.resolve("transformer", [path])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--attn-variant", "qk_kap"], "policy.attention.variant = 'qk_kap' is not a choice"),
        (["--preset", "bot"], "policy.preset = 'bot' is not a choice"),
        (["--attn-norms", "qk"], "unknown option --attn-norms: did you mean '--attn-norm'"),
        (["--attn-softcap", "abc"], "policy.attention.softcap = 'abc' is not a choice"),
        (["--freeze", "message"], "policy.freeze names 'message', which transformer has not"),
    ],
)
def test_mistakes_on_the_command_line(flags: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_train(["--method", "transformer", *flags])


def test_the_method_and_the_settings_of_runs_from_before_there_was_attention() -> None:
    config = loader.resolve("transformer")
    assert config.policy == PolicyConfig(network="transformer")
    old = {key: value for key, value in dataclasses.asdict(PolicyConfig()).items() if key != "attention"}
    assert loader.build([loader.check_layer({"policy": old})]).policy == PolicyConfig()
    paths = loader.flat(TrainConfig())
    assert paths["policy.attention.norm"] == "qk"
    assert paths["seed"] == 0
    assert "transformer" in files.method_names()
    assert math.isclose(paths["ppo.gamma"], 0.99)

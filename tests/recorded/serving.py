"""What vLLM's own server needs to run on any machine: a platform, an executor without a model, a model folder.

The platform and the recorder are found by entry points in each process of the server, as those of any package are.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAME = "small"
END = 256
ENTRY_POINTS = """[vllm.general_plugins]
slotcheck = harness.targets.recorder:register
[vllm.platform_plugins]
nowhere = tests.recorded.serving:platform
"""
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "hidden_act": "silu",
    "torch_dtype": "float16",
    "bos_token_id": END,
    "eos_token_id": END,
}


def platform() -> str:
    """The entry point of `vllm.platform_plugins`."""
    return f"{__name__}.Nowhere"


def __getattr__(name: str) -> object:
    """Classes that need vLLM, made when it asks for them."""
    if name == "Nowhere":
        unspecified = importlib.import_module("vllm.platforms.interface").UnspecifiedPlatform
        return type(name, (unspecified,), {"device_type": "cpu", "__module__": __name__})
    if name == "ModelFree":
        from harness.targets.model_free import executor_class
        from tests.recorded.settings import setting

        found = executor_class(setting(num_blocks=120, enable_caching=True), 0)
        found.__module__, found.__qualname__ = __name__, name
        globals()[name] = found
        return found
    raise AttributeError(name)


def write_plugin(folder: Path) -> None:
    """A distribution's metadata, as an installer leaves them."""
    place = folder / "slotcheck-0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: slotcheck\nVersion: 0\n")
    (place / "entry_points.txt").write_text(ENTRY_POINTS)


def write_model(folder: Path) -> None:
    """A config and a tokenizer of bytes; no weights."""
    tokenizers = importlib.import_module("tokenizers")
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    vocabulary = {letter: number for number, letter in enumerate(sorted(byte_level.alphabet()))}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary | {"<end>": END}, merges=[]))
    made.pre_tokenizer = byte_level(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.save(str(folder / "tokenizer.json"))
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>", "model_max_length": 256}
    told["chat_template"] = "{% for one in messages %}{{ one.role }}: {{ one.content }}\n{% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps(told))

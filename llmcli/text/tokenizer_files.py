"""From a checkpoint folder to a `tokenizers` object: which files are read, and which one wins.

Must not know about encoding rules, chat or decoding.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from llmcli.errors import TokenizerError

NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")
# Classes for which transformers keeps tokenizer.json's own pre-tokenizer, whatever the config says.
GENERIC_CLASSES = (None, "PreTrainedTokenizerFast", "TokenizersBackend")
# These name no token in their files, but mean this one
GPT2_CLASSES = ("GPT2Tokenizer", "GPT2TokenizerFast")
GPT2_END = "<|endoftext|>"


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """A ready backend, the file it came from, and the token texts that the configs name."""

    backend: Backend
    source: Path
    names: Mapping[str, str]
    asks_bos: bool


def load_files(folder: Path) -> TokenizerFiles:
    """Read the tokenizer of a folder; tokenizer.json wins over vocab.json with merges.txt."""
    config = read_json(folder / "tokenizer_config.json")
    names = _named_tokens(config, read_json(folder / "special_tokens_map.json"))
    source = folder / "tokenizer.json"
    if source.is_file():
        backend = _read_backend(source)
        # transformers reads add_bos_token only where no tokenizer.json speaks for itself
        asks_bos = False
        spells_end = config.get("tokenizer_class") in GPT2_CLASSES
        if config.get("tokenizer_class") not in GENERIC_CLASSES:
            _apply_prefix_space(backend, config)
    else:
        source = folder / "vocab.json"
        backend = _build_gpt2(folder, config)
        asks_bos = config.get("add_bos_token") is True
        spells_end = True
    if spells_end and backend.token_to_id(GPT2_END) is not None:
        names = {**dict.fromkeys(("bos_token", "eos_token", "unk_token"), GPT2_END), **names}
    backend.no_truncation()
    backend.no_padding()
    _register(backend, config, names)
    return TokenizerFiles(backend=backend, source=source, names=names, asks_bos=asks_bos)


def read_json(path: Path) -> dict[str, object]:
    """The object in a JSON file; an absent file is an empty object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise TokenizerError(
            f"{path} cannot be read: {_one_line(error)}",
            hint="download the file again; it must be a JSON object",
        ) from error
    if not isinstance(value, dict):
        raise TokenizerError(
            f"{path} holds a JSON {type(value).__name__}, needed an object",
            hint="download the file again",
        )
    return value


def _read_backend(path: Path) -> Backend:
    try:
        return Backend.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        size = path.stat().st_size
        with path.open("rb") as file:
            pointer = file.read(40).startswith(b"version https://git-lfs")
        cause = "a git-lfs pointer, not the file itself" if pointer else _one_line(error)
        raise TokenizerError(
            f"{path} ({size} bytes) is no usable tokenizer: {cause}",
            hint="fetch it again (git lfs pull)" if pointer else "download the file again",
        ) from error


def _build_gpt2(folder: Path, config: Mapping[str, object]) -> Backend:
    vocab, merges = folder / "vocab.json", folder / "merges.txt"
    if not (vocab.is_file() and merges.is_file()):
        if (folder / "tokenizer.model").is_file():
            raise TokenizerError(
                f"{folder} has only tokenizer.model (SentencePiece), needed tokenizer.json",
                hint="take tokenizer.json from the model's own page, or convert it with "
                "AutoTokenizer.from_pretrained(...).save_pretrained(...)",
            )
        raise TokenizerError(
            f"{folder} has no tokenizer.json (nor vocab.json with merges.txt)",
            hint="download tokenizer.json into the folder",
        )
    try:
        backend = Backend(models.BPE.from_file(str(vocab), str(merges)))
    except Exception as error:
        raise TokenizerError(
            f"{vocab} and {merges.name} do not make a tokenizer: {_one_line(error)}",
            hint="download both files again",
        ) from error
    prefix_space = config.get("add_prefix_space") is True
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    backend.decoder = decoders.ByteLevel()
    return backend


def _apply_prefix_space(backend: Backend, config: Mapping[str, object]) -> None:
    wanted = config.get("add_prefix_space")
    pre = backend.pre_tokenizer
    if (
        isinstance(wanted, bool)
        and isinstance(pre, pre_tokenizers.ByteLevel)
        and pre.add_prefix_space != wanted
    ):
        pre.add_prefix_space = wanted


def _named_tokens(*files: Mapping[str, object]) -> dict[str, str]:
    names: dict[str, str] = {}
    for file in files:
        for key in NAMED_TOKENS:
            value = file.get(key)
            text = value.get("content") if isinstance(value, Mapping) else value
            if isinstance(text, str) and text:
                names.setdefault(key, text)
    return names


def _register(backend: Backend, config: Mapping[str, object], names: Mapping[str, str]) -> None:
    """Give the backend the flags that tokenizer_config.json states; never a new id by mistake."""
    known = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    before = {text: repr(token) for text, token in known.items()}
    wanted: dict[str, AddedToken] = {}
    entries = config.get("added_tokens_decoder")
    by_id = entries if isinstance(entries, Mapping) else {}
    for key, entry in sorted(by_id.items(), key=lambda item: _as_int(item[0])):
        content = entry.get("content") if isinstance(entry, Mapping) else None
        if not isinstance(content, str) or not content:
            continue
        token = AddedToken(
            content,
            single_word=entry.get("single_word") is True,
            lstrip=entry.get("lstrip") is True,
            rstrip=entry.get("rstrip") is True,
            normalized=entry.get("normalized") is True,
            special=entry.get("special") is True,
        )
        if backend.token_to_id(content) in (_as_int(key), None):
            wanted[content] = token
    # A token that the configs name as bos, eos, ... is special even where no file flags it
    extras = config.get("additional_special_tokens") or config.get("extra_special_tokens")
    listed = [text for text in extras if isinstance(text, str)] if isinstance(extras, list) else []
    for text in (*names.values(), *listed):
        token = wanted.get(text) or known.get(text) or AddedToken(text, normalized=False)
        if backend.token_to_id(text) is not None or text in wanted:
            token.special = True
            wanted[text] = token
    changed = [t for text, t in wanted.items() if repr(t) != before.get(text)]
    if changed:
        backend.add_tokens(changed)


def _as_int(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() else -1


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]

"""Small tokenizers and chat templates built in the tests; nothing is downloaded."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from llmcli.text.chat_template import ChatTemplate, TemplateSource

STORIES = Path(__file__).parents[2] / "weights" / "stories260k"
CORPUS = [
    "Once upon a time there was a little girl who said hello to the big red dog.",
    "def f(x):\n    return x + 1  # the user said so, and the system obeyed",
    "naïve café, 日本語, 😀 family 👨‍👩‍👧, it 's a test . do not stop !",
]
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def template(text: str, origin: str = "chat_template.jinja") -> ChatTemplate:
    return ChatTemplate(TemplateSource(text, origin))


def special(text: str) -> AddedToken:
    return AddedToken(text, special=True, normalized=False)


def byte_level(*, specials: tuple[str, ...] = SPECIALS, bos: bool = False) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[special(text) for text in specials],
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_tokens([AddedToken("<think>", normalized=False), "�"])
    if bos:
        add_bos(backend, specials[0])
    return backend


def add_bos(backend: Tokenizer, text: str, *, eos: str = "") -> None:
    names = [text, *([eos] if eos else [])]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{text} $A" + (f" {eos}" if eos else ""),
        pair="$A $B",
        special_tokens=[(name, backend.token_to_id(name)) for name in names],
    )


def metaspace(scheme: str = "first") -> Tokenizer:
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    backend.decoder = decoders.Metaspace(prepend_scheme=scheme)
    trainer = trainers.BpeTrainer(
        vocab_size=220,
        special_tokens=[special(t) for t in ("<unk>", "<s>", "</s>", "[INST]", "[/INST]")],
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    return backend


def word_piece() -> Tokenizer:
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(cleanup=True)
    trainer = trainers.WordPieceTrainer(
        vocab_size=200,
        special_tokens=[special(t) for t in ("[UNK]", "[CLS]", "[SEP]")],
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_tokens([".", "!", " n't"])
    return backend


def word_suffix() -> Tokenizer:
    backend = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    trainer = trainers.BpeTrainer(
        vocab_size=200,
        special_tokens=[special("<unk>")],
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    return backend


def odd_decoders() -> dict[str, Tokenizer]:
    """Chains that few checkpoints have, on the vocabulary of stories260k."""
    chains = {
        "no decoder": None,
        "ctc": decoders.CTC(),
        "fallback, no strip": decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        ),
        "two strips": decoders.Sequence(
            [
                decoders.Replace(Regex("▁+"), " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 2, 0),
            ]
        ),
        "strip each": decoders.Sequence([decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)]),
        "strip end": decoders.Sequence([decoders.Fuse(), decoders.Strip("n", 0, 1)]),
        "replace fused": decoders.Sequence([decoders.Fuse(), decoders.Replace("▁", " ")]),
    }
    made = {}
    for name, decoder in chains.items():
        state = json.loads((STORIES / "tokenizer.json").read_text(encoding="utf-8"))
        state["decoder"] = None if decoder is None else json.loads(decoder.__getstate__())
        made[name] = Tokenizer.from_str(json.dumps(state))
    return made


def save(backend: Tokenizer, folder: Path, **config: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


BUILT = (
    "byte_level",
    "stories",
    "metaspace first",
    "metaspace always",
    "word_piece",
    "word_suffix",
)
ODD = tuple(odd_decoders())

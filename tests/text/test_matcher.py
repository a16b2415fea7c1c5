"""Random walks through grammars: every text that comes out is in the language, by other judges."""

from __future__ import annotations

import json
import random
import re

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from test_token_bytes import WITH

from llmcli.errors import GenerationError, TokenizerError, UsageError
from llmcli.text.detokenizer import Detokenizer
from llmcli.text.grammar import Grammar, read_grammar
from llmcli.text.matcher import Matcher, Vocabulary, make_vocabulary
from llmcli.text.tokenizer import Tokenizer

PATTERNS = [
    "Once upon",
    " a",
    "  b?",
    "",
    "(a|ab)(c|bcd)?",
    "[0-9]{3}-[a-f]+",
    "é🙂{1,3}x?",
    r"[0-9]+\.[0-9]{2}",
]
SCHEMAS = [
    {"type": "integer", "minimum": -3, "maximum": 40},
    {"type": "boolean", "x-guidance": {"whitespace_flexible": False}},
    {"enum": ["a", 1, None, [True]]},
    {"type": "string", "maxLength": 4},
    {"type": "string", "pattern": "^[A-Z][a-z]{0,3}$"},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 3},
            "é": {"anyOf": [{"type": "null"}, {"const": "x"}]},
            "n": {"type": "number", "minimum": 0, "maximum": 2},
        },
        "required": ["name", "n"],
        "additionalProperties": False,
    },
]
BYTES = ["byte_level", "stories", "fallback, no strip", "two strips"]


@pytest.fixture(scope="module")
def vocabularies(tokenizers: dict[str, Tokenizer]) -> dict[str, Vocabulary]:
    return {name: make_vocabulary(tokenizers[name], tokenizers[name].special_ids) for name in WITH}


def _walk(matcher: Matcher, seed: int, most: int = 400) -> list[int] | None:
    """Ids drawn until the text may end, and then a coin falls; None where that takes too long."""
    draw = random.Random(seed)
    ids: list[int] = []
    while len(ids) < most:
        allowed = np.flatnonzero(matcher.allowed(ids)).tolist()
        if matcher.may_end(ids) and (not allowed or draw.random() < 0.5):
            return ids
        assert allowed, f"stuck after {ids}"
        ids.append(draw.choice(allowed))
    return None


def _text(tokenizer: Tokenizer, prompt: list[int], ids: list[int]) -> str:
    detokenizer = _context(tokenizer, prompt)
    return "".join(map(detokenizer.feed, ids)) + detokenizer.flush()


def _context(tokenizer: Tokenizer, prompt: list[int]) -> Detokenizer:
    return Detokenizer(tokenizer, prompt, hidden=tokenizer.special_ids)


def _walks(
    tokenizers: dict[str, Tokenizer],
    vocabularies: dict[str, Vocabulary],
    name: str,
    grammar: Grammar,
    prompt: str,
) -> list[str]:
    tokenizer = tokenizers[name]
    before = tokenizer.encode_raw(prompt) if prompt else []
    texts = []
    for seed in range(12):
        matcher = Matcher.start(grammar, vocabularies[name], _context(tokenizer, before))
        ids = _walk(matcher, seed)
        if ids is not None:
            assert not {*ids} & tokenizer.special_ids
            texts.append(_text(tokenizer, before, ids))
    assert len(texts) > 3
    return texts


@pytest.mark.parametrize("prompt", ["", "a dog"])
@pytest.mark.parametrize("name", BYTES)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(
    tokenizers: dict[str, Tokenizer],
    vocabularies: dict[str, Vocabulary],
    name: str,
    pattern: str,
    prompt: str,
) -> None:
    grammar = read_grammar("regex", pattern, pattern)
    for text in _walks(tokenizers, vocabularies, name, grammar, prompt):
        assert re.fullmatch(pattern, text), text


@pytest.mark.parametrize("prompt", ["", "a dog"])
@pytest.mark.parametrize("name", BYTES)
@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_schemas(
    tokenizers: dict[str, Tokenizer],
    vocabularies: dict[str, Vocabulary],
    name: str,
    schema: dict[str, object],
    prompt: str,
) -> None:
    grammar = read_grammar("json-schema", json.dumps(schema), "s.json")
    for text in _walks(tokenizers, vocabularies, name, grammar, prompt):
        Draft202012Validator(schema).validate(json.loads(text))


@pytest.mark.parametrize("prompt", ["", "the dog"])
@pytest.mark.parametrize(
    "name", ["metaspace first", "metaspace always", "word_piece", "no decoder"]
)
def test_vocabularies_without_bytes(
    tokenizers: dict[str, Tokenizer], vocabularies: dict[str, Vocabulary], name: str, prompt: str
) -> None:
    pattern = "( ?(the|a|dog|he|o)){1,4}" if name != "no decoder" else " ?[a-z▁ ]{1,12}"
    grammar = read_grammar("regex", pattern, "")
    if name in ("word_piece", "no decoder") and not prompt:
        with pytest.raises(GenerationError, match="no token of a space alone"):
            _walks(tokenizers, vocabularies, name, grammar, prompt)
        return
    for text in _walks(tokenizers, vocabularies, name, grammar, prompt):
        assert re.fullmatch(pattern, text), text


def test_lark(tokenizers: dict[str, Tokenizer], vocabularies: dict[str, Vocabulary]) -> None:
    lark = 'start: sum\nsum: NUMBER ("+" NUMBER)* | "(" sum ")"\nNUMBER: /[0-9]{1,2}/'
    grammar = read_grammar("grammar", lark, "sum.lark")
    for prompt in ("", "a dog"):
        for text in _walks(tokenizers, vocabularies, "stories", grammar, prompt):
            assert re.fullmatch(r"\(*\d\d?(\+\d\d?)*\)*", text)
            assert text.count("(") == text.count(")")


def test_answers_depend_on_the_ids_alone(
    tokenizers: dict[str, Tokenizer], vocabularies: dict[str, Vocabulary]
) -> None:
    """Whatever was asked before: speculation and beams jump back and forth."""
    grammar = read_grammar("json-schema", json.dumps(SCHEMAS[-1]), "")
    context = tokenizers["stories"].encode_raw("a dog")

    def start() -> Matcher:
        return Matcher.start(
            grammar, vocabularies["stories"], _context(tokenizers["stories"], context)
        )

    walks = [ids for seed in range(6) if (ids := _walk(start(), seed)) is not None]
    asked = [ids[:at] for ids in walks for at in (0, 1, len(ids) // 2, len(ids))]
    random.Random(1).shuffle(asked)
    used = start()
    for ids in asked:
        fresh = start()
        assert used.may_end(ids) == fresh.may_end(ids)
        assert used.ended(ids) == fresh.ended(ids)
        assert (used.allowed(ids) == fresh.allowed(ids)).all()
        assert (used.fork().allowed(ids) == fresh.allowed(ids)).all()


def test_silent_ids_are_never_text(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["byte_level"]
    end = tokenizer.encode_raw(".", bos=False)[0]
    vocabulary = make_vocabulary(tokenizer, {*tokenizer.special_ids, end})
    matcher = Matcher.start(
        read_grammar("regex", r"(?s:.)*", ""), vocabulary, _context(tokenizer, [])
    )
    allowed = matcher.allowed([])
    assert allowed.sum() > 200
    assert not allowed[[end, *tokenizer.special_ids]].any()
    assert allowed.shape == (tokenizer.vocab_size,)


def test_what_no_token_can_spell(
    tokenizers: dict[str, Tokenizer], vocabularies: dict[str, Vocabulary]
) -> None:
    tokenizer = tokenizers["metaspace first"]
    matcher = Matcher.start(
        read_grammar("regex", "龘", ""),
        vocabularies["metaspace first"],
        _context(tokenizer, tokenizer.encode_raw("a dog")),
    )
    assert not matcher.allowed([]).any()
    assert not matcher.may_end([])


def test_an_engine_that_gives_up_says_so(
    tokenizers: dict[str, Tokenizer], vocabularies: dict[str, Vocabulary]
) -> None:
    matcher = Matcher.start(
        read_grammar("regex", "ab", ""),
        vocabularies["stories"],
        _context(tokenizers["stories"], []),
    )
    wrong = tokenizers["stories"].encode_raw("zzz", bos=False)
    with pytest.raises(GenerationError, match="gives up"):
        matcher.allowed(wrong)


def test_tokenizers_without_bytes_are_refused(tokenizers: dict[str, Tokenizer]) -> None:
    with pytest.raises(TokenizerError, match="BPEDecoder"):
        make_vocabulary(tokenizers["word_suffix"], ())


@pytest.mark.parametrize(
    ("kind", "source", "said"),
    [
        ("regex", "(a", "--regex N: unclosed group"),
        ("regex", "a(?=b)", "look-around"),
        ("regex", r"(a)\1", "backreferences are not supported"),
        ("grammar", "start: foo", 'unknown name: "foo"'),
        ("grammar", "", "Empty grammar"),
        ("json-schema", "{", "N is no JSON"),
        ("json-schema", "true or false", "N is no JSON"),
        ("json-schema", "[1]", "schema must be an object or boolean"),
        ("json-schema", '{"type": "foo"}', "Invalid type: foo"),
        ("json-schema", '{"uniqueItems": true, "type": "array"}', "uniqueItems"),
        ("json-schema", '{"enum": []}', "Unsatisfiable"),
        ("json-schema", '{"a":' * 500 + "1" + "}" * 500, "N"),
    ],
)  # fmt: skip
def test_a_bad_grammar_is_one_line(kind: str, source: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        read_grammar(kind, source, "N")  # type: ignore[arg-type]
    assert "\n" not in caught.value.message
    assert caught.value.hint

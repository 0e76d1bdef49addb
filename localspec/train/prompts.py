"""What a target is asked, so that its answers teach a head: questions of many kinds, none of the bench's own.

The material of later questions (texts to copy, code to change) is what the target wrote before.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

_THINGS = (
    "a kettle", "a bridge", "rain", "a bicycle pump", "honey", "an orchestra", "a lighthouse keeper's day",
    "moss", "a chess opening", "bread", "a night train", "glass", "the tides", "a market stall", "wool",
    "a thermometer", "an echo", "a postal service", "a garden pond", "snow", "a violin", "soap", "a compass",
    "a kitchen clock", "chalk", "a windmill", "pepper", "a tunnel", "paper", "migrating birds", "a canoe",
    "a library card", "volcanoes", "a greenhouse", "magnets", "a ferry", "cheese", "a radio", "dew", "a map",
)  # fmt: skip
_ACTIONS = (
    "counts the vowels of a text", "finds the largest of some numbers", "reverses the words of a sentence",
    "checks whether a year is a leap year", "adds up the digits of a number", "merges two sorted lists",
    "removes doubles from a list", "converts miles to kilometres", "counts how often each word occurs",
    "reads numbers from a file and prints their mean", "checks for balanced brackets", "rolls two dice",
    "computes a factorial", "turns seconds into hours and minutes", "finds the shortest word of a list",
    "writes a table of squares", "tests whether a number is prime", "capitalizes every word of a text",
    "splits a list into pairs", "computes interest over some years", "looks up a name in a phone book",
    "draws a triangle of stars", "sorts people by their age", "encodes a text with a shift cipher",
)  # fmt: skip
_RECORDS = (
    ("book", "title, author, year, pages"), ("flight", "from, to, departure, seats"),
    ("recipe", "name, minutes, servings, ingredients"), ("student", "name, age, grade, subjects"),
    ("invoice", "number, customer, items, total"), ("planet", "name, moons, radius_km, has_rings"),
    ("room", "number, floor, beds, price"), ("song", "title, artist, seconds, album"),
    ("parcel", "id, weight_kg, sender, receiver"), ("match", "home, away, goals, date"),
)  # fmt: skip
_WHO = ("a teacher", "a child", "a baker", "a sailor", "an old clockwork", "a gardener", "two neighbours",
        "a translator", "a painter", "a nurse", "a lost traveller", "a mechanic")  # fmt: skip
_WHERE = ("in a small town", "on an island", "in a snowed-in station", "at a night market", "in an archive",
          "by a canal", "in the mountains", "on a slow train", "in a workshop", "at a harbour")  # fmt: skip
_LANGUAGES = ("Python", "Python", "Python", "JavaScript", "Java", "C")
_NAMES = ("total", "count", "result", "items", "value", "index", "words", "number", "text", "data", "numbers")
_NEW_NAMES = ("amount", "entries", "outcome", "position", "tally", "source", "content", "records", "figure")
_SHORTEST = 60
"""Characters of a text that is worth asking about."""
_LONGEST = 1400
_STRANGE = 0.2
"""Share of a text's words that are replaced before it is to be copied. A model's own text could be guessed
without a look at it, and what people have copied is not the model's own."""
_SYSTEM = (
    "You are a careful assistant. Answer in plain words.", "You are a programmer who reviews code.",
    "Use only what the user's text says, and quote it.", "Reply by calling a tool, in JSON.",
    "You are a friendly teacher.", "Keep to the format that the user asks for, without a word around it.",
    "You mend code. Say what is wrong, then write the file anew.",
)  # fmt: skip
_FOLLOWING = (
    "Make that shorter.", "Say it again in simpler words.", "Sum that up in three points.", "Go on.",
    "Turn this into a list.", "Which part of that matters most, and why?", "Write it again, more formally.",
    "Thanks. Give me an example.", "Repeat the last sentence and explain it.", "Is that right? Check it.",
    "Now the same as a letter to a friend.", "What did you say first? Quote it.",
)  # fmt: skip


def first_question(rng: random.Random) -> str:
    """A question that needs no material."""
    kind = rng.random()
    thing, action = rng.choice(_THINGS), rng.choice(_ACTIONS)
    if kind < 0.25:
        language = rng.choice(_LANGUAGES)
        return rng.choice(
            (
                f"Write a {language} function that {action}.",
                f"Show me a short {language} program that {action}, with comments.",
                f"I need code in {language} that {action}. Write it and explain it in two sentences.",
            )
        )
    if kind < 0.45:
        return rng.choice(
            (
                f"Explain how {thing} works, in a few short paragraphs.",
                f"What should a beginner know about {thing}?",
                f"Why is {thing} useful? Give three reasons as a numbered list.",
                f"Compare {thing} with {rng.choice(_THINGS)}.",
                f"Describe {thing} to somebody who has never seen it.",
            )
        )
    if kind < 0.62:
        return rng.choice(
            (
                f"Tell a short story about {rng.choice(_WHO)} {rng.choice(_WHERE)}.",
                f"Write a story in which {rng.choice(_WHO)} meets {rng.choice(_WHO)} {rng.choice(_WHERE)}.",
                f"Write a paragraph about {thing} {rng.choice(_WHERE)}.",
                f"Write a letter from {rng.choice(_WHO)} to {rng.choice(_WHO)} about {thing}.",
            )
        )
    if kind < 0.82:
        name, fields = rng.choice(_RECORDS)
        count = rng.randint(2, 5)
        return rng.choice(
            (
                f"Write {count} records of a {name} as JSON, each with the fields {fields}.",
                f"Give me a JSON array of {count} objects of the kind {name} ({fields}). Only JSON.",
                f"Make a table in Markdown of {count} {name}s with the columns {fields}.",
                f"List {count} made-up {name}s, one a line, as: {fields}.",
            )
        )
    return rng.choice(
        (
            f"Plan a day for {rng.choice(_WHO)} {rng.choice(_WHERE)}, hour by hour.",
            f"Give me advice about {thing}.",
            f"Write ten questions that {rng.choice(_WHO)} could be asked about {thing}.",
            f"What do you know about {thing}? Answer in five sentences.",
            f"Say in simple words: {thing} {rng.choice(_WHERE)} is seldom what {rng.choice(_WHO)} expects.",
        )
    )


def later_question(
    rng: random.Random, texts: Sequence[str], codes: Sequence[str], words: Sequence[str]
) -> str:
    """A question about something that was written before: to copy, change, sum up, or look up in it.

    Args:
        rng: draws.
        texts: what was written, one of these or `codes` at least.
        codes: the same, of programs.
        words: of all kinds, which take the place of some of the text's.
    """
    if codes and (not texts or rng.random() < 0.4):
        return _about_code(rng, rng.choice(codes))
    text, other = rng.choice(texts), rng.choice(texts)
    if rng.random() < 0.5:
        text, other = disturbed(rng, text, words), disturbed(rng, other, words)
    sentence = rng.choice([part for part in re.split(r"(?<=[.!?])\s+", text) if part] or [text])
    word = rng.choice(re.findall(r"[A-Za-z]{4,}", text) or ["it"])
    half, more = (one[: _LONGEST // 2] for one in (text, other))
    first, second = rng.sample(range(1, 99), 2)
    return rng.choice(
        (
            f"Repeat the following text word for word:\n\n{text}",
            f"Repeat this text exactly, without a comment:\n\n{text}",
            f"Copy this text and then copy it once more:\n\n{half}",
            f"Summarize this text in three sentences, with one quote from it:\n\n{text}",
            f"Text:\n{text}\n\nQuestion: What does the text say about {word}? Answer with a quote.",
            f"[note-{first}] {half}\n\n[page-{second}] {more}\n\nWhat is said of {word}? Quote.",
            f"Correct the spelling of this text and return all of it:\n\n{text}",
            f"Replace the word {word} by {rng.choice(_NEW_NAMES)} everywhere in this text:\n\n{text}",
            f"Document 1: {text}\n\nDocument 2: {sentence}\n\nWhich one mentions {word}? Quote it.",
            f"Rewrite this text as a bulleted list:\n\n{text}",
            f"Continue this text:\n\n{text}",
            f"Turn this into JSON with the keys title, summary and keywords:\n\n{text}",
        )
    )


def _about_code(rng: random.Random, code: str) -> str:
    found = [name for name in _NAMES if re.search(rf"\b{name}\b", code)]
    old = rng.choice(found) if found else "x"
    new, line = rng.choice(_NEW_NAMES), rng.choice([one.strip() for one in code.splitlines() if one.strip()])
    failed = f"main.py::test_{old} FAILED\n>       {line}\nE       NameError: {old}"
    return rng.choice(
        (
            f"Repeat this code exactly as it is:\n\n```\n{code}\n```",
            f"```\n{code}\n```\n\nRename {old} to {new} and write it all again.",
            f"Rename {old} to {new} in this code and return all of it in one block:\n\n{code}",
            f"Add a comment before every line of this code and return all of it:\n\n```\n{code}\n```",
            f"Make this print its result too, and return the full code.\n\n```\n{code}\n```",
            f"Check the arguments, add a docstring, and return all of this code:\n\n{code}",
            f"```\n{code}\n```\n\nExplain this code line by line, quoting each line.",
            f"main.py:\n{code}\n\n{failed}\n\nSay what is wrong, then write the whole file, repaired.",
        )
    )


def disturbed(rng: random.Random, text: str, words: Sequence[str]) -> str:
    """`text` with some other words in it and with other numbers, so that it has to be read."""

    def other(found: re.Match[str]) -> str:
        if found[0].isdigit():
            return str(rng.randrange(10 ** len(found[0])))
        return rng.choice(words) if words and rng.random() < _STRANGE else found[0]

    return re.sub(r"\d+|[A-Za-z]{4,}", other, text)


def follow_up(rng: random.Random) -> str:
    """What is asked after an answer."""
    return rng.choice(_FOLLOWING)


def system_line(rng: random.Random) -> str:
    """What a model is told before a chat begins."""
    return rng.choice(_SYSTEM)


def material(answer: str) -> tuple[str, bool] | None:
    """What a later question can be about: a piece of an answer, and whether it is code; None for nothing."""
    code = re.search(r"```[a-zA-Z]*\n(.+?)```", answer, re.DOTALL)
    if code and len(code[1].strip()) >= _SHORTEST:
        return code[1].strip()[:_LONGEST], True
    plain = answer.strip()
    if "```" in plain or len(plain) < _SHORTEST:
        return None
    paragraphs = [part.strip() for part in plain.split("\n\n") if len(part.strip()) >= _SHORTEST]
    return ("\n\n".join(paragraphs)[:_LONGEST], False) if paragraphs else None

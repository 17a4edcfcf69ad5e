"""A made-up operations handbook: passages, questions and long documents.

Standard library only, deterministic, shared by the data build and by the load
plans, which run outside the service's virtual environment.
"""

from __future__ import annotations

import random

TOPICS: dict[str, list[str]] = {
    "cooling pumps": ["impeller", "seal", "coolant", "flow meter", "bypass valve", "cavitation"],
    "diesel generators": ["governor", "fuel filter", "starter battery", "load bank", "exhaust"],
    "network switches": ["uplink", "spanning tree", "optic", "port channel", "firmware image"],
    "payroll": ["overtime", "tax code", "pension", "pay slip", "cut-off date", "bank file"],
    "warehouse robots": ["gripper", "charging dock", "laser scanner", "tote", "safety zone"],
    "vector databases": ["embedding", "shard", "recall", "compaction", "index build", "quantiser"],
    "fire safety": ["sprinkler", "smoke detector", "muster point", "extinguisher", "drill"],
    "customer support": ["ticket", "escalation", "reply template", "backlog", "satisfaction score"],
    "water treatment": ["chlorine", "turbidity", "membrane", "backwash", "dosing pump"],
    "language models": ["prompt", "context window", "tokenizer", "sampling", "guardrail"],
    "railway signals": ["interlocking", "axle counter", "point machine", "track circuit"],
    "bakery ovens": ["steam", "proofing", "thermocouple", "conveyor", "flour dust"],
    "hospital beds": ["side rail", "mattress pump", "nurse call", "castor", "weight sensor"],
    "solar farms": ["inverter", "string fuse", "tracker motor", "irradiance", "soiling"],
    "lift maintenance": ["door operator", "governor rope", "brake", "car light", "levelling"],
    "export licences": ["customs code", "end user", "declaration", "tariff", "audit trail"],
}
_ACTIONS = ["inspect", "replace", "record", "calibrate", "escalate", "isolate", "restart", "review"]
_WHO = ["the shift lead", "the duty engineer", "the planner", "the auditor", "the operator"]
_WHEN = ["every morning", "after each alarm", "before a handover", "twice a year", "on request"]
_FORMS = [
    "{who} must {action} the {a} of {topic} {when}, and note the state of the {b}.",
    "If the {a} shows wear, {action} it {when}; the {b} is checked by {who}.",
    "For {topic}, a faulty {a} is the first suspect when the {b} drifts.",
    "Never {action} the {b} while the {a} is in use: {who} signs this off {when}.",
]


def _sentence(rng: random.Random, topic: str) -> str:
    a, b = rng.sample(TOPICS[topic], 2)
    return rng.choice(_FORMS).format(
        who=rng.choice(_WHO), action=rng.choice(_ACTIONS), when=rng.choice(_WHEN), topic=topic, a=a, b=b
    )


def passages(count: int, seed: int = 1) -> list[str]:
    """Passages of three sentences, topics in turn."""
    rng = random.Random(seed)
    topics = list(TOPICS)
    return [
        " ".join(_sentence(rng, topics[i % len(topics)]) for _ in range(3)) for i in range(count)
    ]


def questions(count: int, seed: int = 2) -> list[str]:
    """Distinct short questions, topics in turn."""
    rng = random.Random(seed)
    topics = list(TOPICS)
    out: list[str] = []
    while len(out) < count:
        topic = topics[len(out) % len(topics)]
        a, b = rng.sample(TOPICS[topic], 2)
        out.append(f"How do I {rng.choice(_ACTIONS)} the {a} of {topic} when the {b} fails?")
    return out


def document(size_bytes: int, seed: int) -> str:
    """A long upload: paragraphs of handbook prose, about size_bytes long."""
    rng = random.Random(seed)
    topics = list(TOPICS)
    parts: list[str] = []
    length = 0
    while length < size_bytes:
        paragraph = " ".join(_sentence(rng, rng.choice(topics)) for _ in range(6))
        parts.append(paragraph)
        length += len(paragraph) + 2
    return "\n\n".join(parts)

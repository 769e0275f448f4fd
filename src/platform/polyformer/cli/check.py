"""`platform check`: the ledger of correctness, on a config or a checkpoint."""

import os
import time

import torch

from polyformer.check import Finding, Subject, described, judge, line_of, of_checkpoint, of_settings, plain, summary_of
from polyformer.cli.load import load
from polyformer.cli.quiet import quiet
from polyformer.cli.settings import parse_settings
from polyformer.cli.words import flag, option
from polyformer.errors import UsageError
from polyformer.plain import to_json
from polyformer.training.memory import keep_freed_memory

__all__ = ["check"]


def check(words: list[str]) -> int:
    """Judges by all laws; the exit code is 1 where one is broken."""
    quiet()
    begun, as_json, device = time.monotonic(), flag(words, "--json"), torch.device(option(words, "--device", "cpu") or "cpu")
    subject = _subject(words, device)
    findings: list[Finding] = []
    for line in described(subject) if not as_json else ():
        print(line)
    for finding in judge(subject):
        if not as_json:
            if not findings or findings[-1].group != finding.group:
                print(f"\n{finding.group}")
            print(line_of(finding), flush=True)
        findings.append(finding)
    print(to_json(plain(subject, findings), indent=2) if as_json else f"\n{summary_of(findings, time.monotonic() - begun)}")
    return int(any(finding.result.outcome == "fail" for finding in findings))


def _subject(words: list[str], device: torch.device) -> Subject:
    """What the words name.

    Raises:
        UsageError: If they name nothing.
    """
    place = option(list(words), "--ckpt_path")
    if place is not None:
        return of_checkpoint(*load(words), place, device)
    if not any(word.startswith(("--config", "--task")) for word in words):
        raise UsageError("say what is to be checked: --config FILE, or --ckpt_path PATH")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    keep_freed_memory()
    parser, settings = parse_settings(words)
    return of_settings(parser.build(settings), device)

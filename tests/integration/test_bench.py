"""The benchmarks run and report their figures. Figures that do not depend on the machine are checked."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from programs.paths import ROOT

from duramen.embedders import InstalledModel, MiniLM, best_precision

BENCH = ROOT / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    spec = spec_from_file_location("bench_execution", BENCH / "execution.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_execution", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.promise("M4")
def test_the_overhead_per_agent_is_measured_and_no_update_is_lost(bench: ModuleType, tmp_path: Path) -> None:
    times_by_agents, refused = bench.measure_agents(tmp_path, 1, updates=32)
    assert set(times_by_agents) == {"append", *map(str, bench.AGENTS)}
    assert all(len(times) == 1 and times[0] > 0 for times in times_by_agents.values())
    assert refused == 0


def test_a_step_costs_one_sync(bench: ModuleType, tmp_path: Path) -> None:
    assert (bench.count_syncs(tmp_path, 110) - bench.count_syncs(tmp_path, 10)) / 100 <= 1.05


def test_a_step_takes_no_more_than_250_bytes(bench: ModuleType, tmp_path: Path) -> None:
    added = bench.size_after(tmp_path / "large.db", 1100) - bench.size_after(tmp_path / "small.db", 100)
    assert added / 1000 <= 250


@pytest.mark.promise("C4")
def test_the_context_benchmark_reports_its_figures(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCH / "context.py"), "--json", "--no-peers", "--rounds", "1", "--turns", "20"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["put_1000_vs_10"] > 0
    assert figures["resume_100k_vs_1k"] > 0
    assert figures["context_build_ms_10k_turns"] > 0
    assert figures["chat1000_bytes_vs_delta"] is None, "there are no peers"


def test_the_embedding_benchmark_reports_its_figures(tmp_path: Path, installed: InstalledModel) -> None:
    turns = [
        {"speaker": "Ann", "text": f"I bought {thing}.", "dia_id": thing} for thing in ("a boat", "two cats", "tea")
    ]
    questions = [{"question": "Which animals does Ann have?", "evidence": ["two cats"], "category": 1}]
    (tmp_path / "talk.json").write_text(json.dumps([{"conversation": {"session_1": turns}, "qa": questions}]))
    command = [sys.executable, str(BENCH / "embedding.py"), "--json", "--rounds", "1", "--data", "talk.json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    for precision in ("float32", best_precision()):
        times = {"ms_12_tokens", "ms_12_tokens_of_6", "ms_39_tokens", "ms_39_tokens_of_6", "ms_200_tokens"}
        assert set(figures["precisions"][precision]) == {*times, "load_ms", "memory_mb"}
        assert figures["search"][f"{precision} / float32"]["recall_at_10"] == 1


def bench_peers_minilm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return import_module("peers.minilm")


def test_vectors_of_another_model_are_not_compared(monkeypatch: pytest.MonkeyPatch, installed: InstalledModel) -> None:
    peers = bench_peers_minilm(monkeypatch)
    exact = MiniLM(installed, precision="float32")
    assert peers.likeness(lambda text: exact.embed([text])[0]) > 0.9999999
    assert peers.likeness(lambda text: peers.embedded([text])[0]) > 0.99
    with pytest.raises(ValueError, match="from another model"):
        peers.likeness(lambda text: peers.embedded([text[::-1]])[0])


def test_mem0_can_use_a_spacy_pipeline_from_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    models: Any = ModuleType("mem0.utils.spacy_models")
    spacy: Any = ModuleType("spacy")
    spacy.load = lambda place, disable=(): SimpleNamespace(meta={"name": f"{place} less {len(disable)}"})
    for name in ("mem0", "mem0.utils", "mem0.utils.spacy_models"):
        monkeypatch.setitem(sys.modules, name, models)
    models.utils = models.spacy_models = models
    monkeypatch.setitem(sys.modules, "spacy", spacy)
    monkeypatch.setenv("BENCH_SPACY_MODEL", "english")
    mem0 = import_module("peers.mem0_peer").Mem0()
    mem0._by_entities()
    assert models._nlp_full.meta["name"] == "english less 0"
    assert models._nlp_lemma.meta["name"] == "english less 2"
    assert mem0.remarks == ["lemmas and entities by english less 0"]


def test_the_recall_benchmark_reports_no_ratios_without_peers(tmp_path: Path, installed: InstalledModel) -> None:
    turns = [{"speaker": "Ann", "text": f"I bought {thing}.", "dia_id": f"D1:{at}"} for at, thing in enumerate("abc")]
    questions = [{"question": "Who bought b?", "evidence": ["D1:1"], "category": 1}]
    conversation = {"session_1": turns, "session_1_date_time": "1:56 pm on 8 May, 2023"}
    (tmp_path / "talk.json").write_text(
        json.dumps([{"sample_id": "one", "conversation": conversation, "qa": questions}])
    )
    command = [sys.executable, str(BENCH / "recall.py"), "--json", "--no-peers", "--data", "talk.json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["recall_at_10"] == 1
    for peer in ("mem0", "chroma", "mem0_same_runtime", "chroma_same_runtime"):
        assert figures[f"recall_p50_vs_{peer}"] is None
        assert figures[f"ingest_vs_{peer}"] is None


def test_peers_are_compared_over_their_common_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    compared = import_module("recall").compared
    ours = {("one", 0): 1.0, ("one", 1): 3.0, ("two", 0): 100.0}
    durations = {"duramen": ours, "chroma": {("one", 0): 10.0, ("one", 1): 30.0}}
    ours_by_talk = {"one": [90.0, 100.0, 900.0], "two": [40.0, 60.0], "three": [1.0]}
    rates = {"duramen": ours_by_talk, "chroma": {"one": [4.0], "two": [1.0], "three": [1.0]}}
    figures = compared(durations, rates)
    assert figures["recall_p50_vs_chroma"] == 0.1
    assert figures["ingest_vs_chroma"] == 25
    assert figures["recall_p50_vs_mem0"] is None

"""Tests lie where the source lies: every test file is named after a module, or says what it spans.

`tests/nkisim/isa/test_matmul.py` and `test_matmul_tiles.py` are of `src/nkisim/isa/matmul.py`. A
module that is too long to be obvious has such a file, or stands in `SPANS` beside the suite that
runs it.
"""

from functools import cache
from pathlib import Path

from source_imports import (
    PACKAGES,
    executed_imports,
    imported_names,
    imports_of,
    source_files,
    target_of,
)

TESTS = Path(__file__).parent
MODULES = source_files()
LONG = 90  # lines of a module that needs a test of its own, or an entry below
# Suites, and the modules they are of besides the one that they are named after: of the same folder,
# or with their packages. A suite that is named after none has to be here.
SPANS = {
    "trnconv/algorithms/winograd/test_norm_steps.py": "late_norm trnconv.problem.epilogue",
    "trnconv/pytorch/lazy/norms/test_epilogues.py": """pending_norm
        trnconv.pytorch.lazy.base.deferred_result
        trnconv.pytorch.operators.normed_convolution""",
    "trnconv/pytorch/lazy/attention/test_scaled_dot_product.py": "deferred_mask index_values masks",
    "trnconv/pytorch/operators/test_attention.py": "trnconv.pytorch.backends.kernel_place",
    "nkisim/commands/test_kernel_files.py": "argument_words kernel_call run_command trace_command",
    "nkisim/device_rules/test_rulebook.py": """instruction_rules loop_rules rule_monitor
        nkisim.isa.on_devices nkisim.memory.accumulation_groups""",
    "nkisim/isa/test_activate2.py": "exponential",
    "nkisim/isa/test_activation.py": "accumulators nkisim.running.overlap",
    "nkisim/isa/test_elementwise.py": "operator_rules",
    "nkisim/isa/test_matmul.py": "psum_write",
    "nkisim/isa/test_matmul_tiles.py": "matmul_rules",
    "nkisim/isa/test_operands.py": "contract rules",
    "nkisim/isa/test_search.py": "gpsimd_search",
    "nkisim/isa/test_tensor_scalar.py": "scalars",
    "nkisim/lint/test_clean_kernels.py": """analysis.bindings analysis.kinds
        analysis.vocabulary""",
    "nkisim/lint/test_nki_library.py": "review",
    "nkisim/lint/test_reach.py": "examine live review text",
    "nkisim/lint/test_report.py": "__main__",
    "nkisim/lint/test_second_opinion.py": "syntax_rules",
    "nkisim/lint/test_tracer.py": "front_ends program_rules",
    "nkisim/lint/test_violations.py": """syntax_rules checks.expressions checks.loops
        checks.references checks.statements""",
    "nkisim/memory/test_placement.py": "allocation",
    "nkisim/numerics/operators/test_operator.py": "nkisim.numerics.operators",
    "nkisim/running/test_kernel.py": "host_arrays launch session",
    "nkisim/running/test_loop_nest.py": "loop_checks nkisim.language.control",
    "nkisim/running/test_races.py": """access_log order provenance nkisim.memory.storage
        nkisim.memory.footprint""",
    "nkisim/surface/test_comparison.py": """nkisim.collectives nkisim.isa nkisim.language
        nkisim.language.tile_size""",
    "nkisim/tensors/test_offsets.py": "indirection",
    "nkisim/tensors/test_scalars.py": "registers nkisim.isa.run_time_scalars",
    "nkisim/tensors/test_tensor.py": "strided_tensor nkisim.memory.layout",
    "nkisim/test_public_calls.py": "errors kinds language.creation",
    "nkisim/test_random_kernels.py": "isa running.races",
    "nkisim/test_shipped_idioms.py": "isa language",
    "nkisim/test_source_lines.py": "variable_names",
    "nkisim/timing/report/test_instruction.py": "access_runs",
    "nkisim/timing/report/test_svg.py": "axis density lanes",
    "nkisim/timing/test_core_schedule_loops.py": "core",
    "nkisim/timing/test_engines.py": "dma_engines",
    "nkisim/timing/test_hazards.py": "ledger",
    "nkisim/timing/test_schedule_properties.py": "reorder",
    "trnconv/problem/test_policy.py": """trnconv.algorithms.winograd.error
        trnconv.algorithms.winograd.rules""",
    "trnconv/bringup/test_fit.py": "timing_kernels",
    "trnconv/bringup/test_ladder.py": "result",
    "trnconv/bringup/test_ladder_failures.py": """probes.dma probes.engines probes.launches
        probes.loops runner""",
    "trnconv/bringup/test_stage0.py": "toolchain",
    "trnconv/cli/test_command_line.py": "capacity encode trnconv.cli",
    "trnconv/cli/test_golden_commands.py": "plan_documents plan_views",
    "trnconv/cli/test_measured_machine.py": "layer_options",
    "trnconv/cli/test_plan_commands.py": """doctor environment explain model_options own_options
        tune""",
    "trnconv/cli/test_sweep.py": "layers plan explain time trace report verify tune bench",
    "trnconv/cli/test_timed_commands.py": "bench layer_options report time trace verify",
    "trnconv/corpus/engines/test_shard_keeper.py": "trnconv.corpus.latents.shard_outcome",
    "trnconv/corpus/test_chaos.py": "planner trnconv.corpus.storage.leases",
    "trnconv/corpus/test_dataset.py": "trnconv.corpus.latents.latent_file",
    "trnconv/corpus/jobs/test_job.py": """worker trnconv.corpus.latents.encoding
        trnconv.corpus.latents.spool trnconv.corpus.run trnconv.corpus.shards.completion""",
    "trnconv/corpus/batches/test_latent_stream.py": "epoch_order stream_places",
    "trnconv/corpus/shards/test_plan.py": "trnconv.corpus.videos.clip_order",
    "trnconv/corpus/shards/test_records.py": "manifest",
    "trnconv/corpus/videos/test_video_reader.py": "listing",
    "trnconv/algorithms/depthwise/test_kernel.py": """candidates cost lower plan rules
        trnconv.runtime.depthwise""",
    "trnconv/algorithms/winograd_upsample/test_algorithm.py": """candidates cost error rules
        trnconv.algorithms.half_precision trnconv.algorithms.rectangles""",
    "trnconv/algorithms/winograd_upsample/test_kernel.py": """blocks chain core lower pack plan
        plane_prefetch recipe sbuf stores pipeline_schedule terms""",
    "trnconv/algorithms/direct/array/test_pe_packing.py": "k_layout m_layout",
    "trnconv/algorithms/direct/test_candidates.py": """block_recipe core kernel lower loops pack
        plan recipe stationaries windows""",
    "trnconv/algorithms/direct/test_cost.py": "accumulations length ramp sbuf traffic",
    "trnconv/algorithms/direct/test_reduced_problem.py": "axis_reads",
    "trnconv/algorithms/weight_gradient/test_cost.py": "rules iterations",
    "trnconv/algorithms/weight_gradient/test_kernel.py": """blocks candidates core lower plan recipe
        tiles trnconv.runtime.weight_gradient""",
    "trnconv/algorithms/weight_gradient/test_sheets.py": "sheet_blocks sheet_cost sheet_tiles",
    "trnconv/algorithms/winograd/test_candidates.py": "block_cost blocks cost sbuf",
    "trnconv/algorithms/winograd/test_kernel.py": """body chain chains channels core executors
        store_tile in_parts lower order pack plan prepare_steps recipe transforms""",
    "trnconv/algorithms/winograd/test_pipeline.py": """input_run pipeline_schedule
        steady_state step_costs throughput""",
    "trnconv/algorithms/test_strict.py": "kernel_parts program recipe_parts",
    "trnconv/algorithms/test_written_twice.py": "program",
    "trnconv/export/test_folder.py": "template.conv",
    "trnconv/host/test_record.py": "workarounds",
    "trnconv/model_plan/test_plans.py": "trnconv.traces.model_trace trnconv.runtime.graph",
    "trnconv/fused_ops/test_attention.py": "attention.core attention.price attention.problem",
    "trnconv/fused_ops/test_rms_norm.py": """chain rms_norm.kernel rms_norm.price
        rms_norm.problem rms_norm.square_sums price sweep sweep_kernel""",
    "trnconv/fused_ops/test_rms_norm_gradient.py": """rms_norm_gradient.kernel
        rms_norm_gradient.price rms_norm_gradient.problem step_sums""",
    "trnconv/fused_ops/test_group_norm.py": """group_norm.apply_core
        group_norm.scale_shift group_norm.price group_norm.problem group_norm.statistics_core""",
    "trnconv/fused_ops/test_group_norm_gradient.py": """group_norm_gradient.kernel
        group_norm_gradient.price group_norm_gradient.problem""",
    "trnconv/fused_ops/test_kernel_subset.py": """attention.kernel rms_norm.kernel
        group_norm.kernel modulation.kernel""",
    "trnconv/fused_ops/test_modulation.py": """modulation.kernel modulation.price
        modulation.problem""",
    "trnconv/nkilib/test_forward.py": "call",
    "trnconv/parallel/test_agreement.py": "comm_group",
    "trnconv/parallel/test_bands.py": "grid receptive_field traffic",
    "trnconv/parallel/test_overlap.py": "boundary_conv split",
    "trnconv/parallel/test_shard_layers.py": "differentiable eager comm halos watch",
    "trnconv/parallel/test_shard_models.py": "banded_model forward row_functions",
    "trnconv/planner/test_best_honesty.py": "trnconv.algorithms.search",
    "trnconv/planner/test_explain.py": "trnconv.runtime.describe",
    "trnconv/planner/test_shares.py": """trnconv.algorithms.direct.block_types
        trnconv.algorithms.direct.algorithm trnconv.algorithms.weight_gradient.algorithm""",
    "trnconv/planner/test_shipped_plans.py": "shipped_file",
    "trnconv/planner/test_tuned_plans.py": "tuned_file trnconv.runtime.tuning",
    "trnconv/pytorch/lazy/test_movements.py": """base.traits convolutions.deferred_conv
        convolutions.operands frames.places frames.stored_frames frames.video fusion.convolution
        fusion.epilogues mode tensors.tensor""",
    "trnconv/pytorch/lazy/fusion/test_epilogue_choice_composed.py": """
        trnconv.pytorch.lazy.convolutions.modelled_time""",
    "trnconv/pytorch/lazy/norms/test_recognition.py": """deferred_norm norm_parts proven_range
        prologues""",
    "trnconv/pytorch/lazy/base/test_pending_reads.py": "memory trnconv.pytorch.lazy.tensors.cell",
    "trnconv/pytorch/patching/test_patch.py": """methods report trnconv.pytorch.lazy.tensors.context
        trnconv.pytorch.lazy.exits trnconv.pytorch.lazy.base.stats""",
    "trnconv/pytorch/test_functional.py": """functional.arguments functional.convolutions
        trnconv.pytorch.backends.aten trnconv.pytorch.backends.conv_call
        trnconv.pytorch.operators.gradients""",
    "trnconv/pytorch/operators/test_launch_graph.py": "trnconv.pytorch.backends.packed_weights",
    "trnconv/pytorch/backends/test_neuron.py": "adapters",
    "trnconv/pytorch/operators/test_norm_derivatives.py": "norm_gradient norm_gradient_launches",
    "trnconv/pytorch/operators/test_norms.py": "norm_call",
    "trnconv/report/test_assemble.py": "content of_model records schedules strips",
    "trnconv/report/test_page.py": "tables timelines",
    "trnconv/test_cache.py": "model_plan.prices",
}
SUITES = sorted(
    str(path.relative_to(TESTS))
    for package in PACKAGES
    for path in (TESTS / package).rglob("test_*.py")
)


def package_of(suite):
    return ".".join(Path(suite).parent.parts)


def namesake(suite):
    """The module that a suite is named after: test_<module>.py, or test_<module>_<topic>.py."""
    words = Path(suite).stem.removeprefix("test_").split("_")
    names = ["_".join(words[:count]) for count in range(len(words), 0, -1)]
    spelled = [
        f"{package_of(suite)}.{algorithm}" for name in names for algorithm in (name, f"__{name}__")
    ]
    return next((module for module in spelled if module in MODULES), None)


def spanned(suite):
    """The modules of an entry, with their packages."""
    for name in SPANS.get(suite, "").split():
        inside = name.partition(".")[0] not in PACKAGES
        yield f"{package_of(suite)}.{name}" if inside else name


def lines(module):
    return len(MODULES[module].read_text().splitlines())


@cache
def imported(path):
    """Modules of ours and files of tests/support that a file of the tests imports."""
    return frozenset(_imported(path))


def _imported(path):
    for name in imported_names(executed_imports(path), "", is_package=False):
        top = name.partition(".")[0]
        if top in PACKAGES:
            yield target_of(name, MODULES)
        elif (TESTS / "support" / f"{top}.py").is_file():
            yield TESTS / "support" / f"{top}.py"


@cache
def imported_by(module):
    return frozenset(imports_of(module, MODULES))


def reached(suite):
    """Every module that a suite imports, or that something it imports does."""
    fixtures = [TESTS / folder / "conftest.py" for folder in Path(suite).parents]
    waiting = [TESTS / suite, *(path for path in fixtures if path.is_file())]
    found = set(waiting)
    while waiting:
        last = waiting.pop()
        fresh = (imported_by(last) if isinstance(last, str) else imported(last)) - found
        found |= fresh
        waiting += fresh
    return found


def test_a_suite_lies_and_is_called_as_a_module_or_says_what_it_spans():
    assert [suite for suite in SUITES if package_of(suite) not in MODULES] == []
    assert [suite for suite in SUITES if not namesake(suite) and suite not in SPANS] == []


def test_what_a_suite_spans_is_there_and_run_by_it():
    assert set(SPANS) - set(SUITES) == set()
    for suite in SPANS:
        modules = set(spanned(suite))
        assert modules - set(MODULES) == set(), suite
        assert modules - reached(suite) == set(), suite
        assert namesake(suite) not in modules, suite


def test_every_long_module_has_a_suite():
    known = {namesake(suite) for suite in SUITES}
    known |= {module for suite in SPANS for module in spanned(suite)}
    assert {module for module in MODULES if lines(module) > LONG} - known == set()


def test_names_are_read_as_people_read_them():
    assert namesake("nkisim/isa/test_matmul_tiles.py") == "nkisim.isa.matmul"
    assert namesake("nkisim/isa/test_matmul_rules.py") == "nkisim.isa.matmul_rules"
    assert namesake("nkisim/test_main.py") == "nkisim.__main__"
    assert namesake("nkisim/isa/test_matmuls.py") is None
    assert "nkisim.lint.review" not in reached("trnconv/host/test_detect.py")

"""What the chapters built, in reading order: never edit it by hand."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from manygpu.scratch.start.one_device import (
        he_normal,
        SHAPES,
        init_params,
        lenet,
        cross_entropy,
        gradients,
        sgd,
    )
    from manygpu.scratch.start.three_ways_to_split import (
        Linear,
        by_network,
        by_layer,
        by_data,
    )
    from manygpu.scratch.data_parallel.parameters_and_devices import (
        get_params,
    )
    from manygpu.scratch.data_parallel.all_reduce import (
        allreduce,
    )
    from manygpu.scratch.data_parallel.many_devices import (
        split_batch,
        cut_batch,
        allreduce_gradients,
        take_step,
        train_batch,
        train,
    )
    from manygpu.scratch.data_parallel.collectives import (
        MessageLog,
        naive_allreduce,
        reduce_scatter,
        all_gather,
        all_to_all,
        ring_allreduce,
        allreduce_with,
    )
    from manygpu.scratch.data_parallel.trees_and_hierarchy import (
        tree_allreduce,
        halving_doubling_allreduce,
        hierarchical_allreduce,
    )
    from manygpu.scratch.data_parallel.hiding_communication import (
        make_buckets,
        allreduce_buckets,
    )
    from manygpu.scratch.data_parallel.gradient_accumulation import (
        accumulate,
    )
    from manygpu.scratch.data_parallel.large_batches import (
        GradualWarmup,
    )
    from manygpu.scratch.engine.mirrored_strategy import (
        mirrored_step,
        keras_lenet,
    )
    from manygpu.scratch.engine.mixed_precision import (
        mixed_gradients,
        LossScale,
        unscale,
        all_finite,
        step_if_finite,
        allreduce_stored,
    )
    from manygpu.scratch.splitting.network import (
        Layer,
        lenet_layers,
        Model,
        Stage,
        even_cuts,
        make_stages,
        Pass,
        kept_pass,
        gradients_of,
        loss_gradient,
        ready_batch,
        partitioned_gradients,
        partitioned_step,
        transfers,
        held_for_backward,
    )
    from manygpu.scratch.splitting.what_a_tensor_means import (
        ask,
    )
    from manygpu.scratch.splitting.program_over_ranks import (
        Mesh,
        place_of,
        groups_along,
        Spread,
        along,
        spread_out,
        part_of,
        joined,
        Backward,
        summed,
        Cut,
        whole,
        WHOLE_LAYER,
    )
    from manygpu.scratch.splitting.batch_normalization import (
        batch_norm,
        guide_cnn_layers,
        synced_batch_norm,
        synced_batch_norm_gradients,
    )
    from manygpu.scratch.splitting.pipeline import (
        Op,
        Slot,
        Plan,
        earliest_spans,
        Schedule,
        forward_only,
        bubble,
        gpipe,
        one_forward_one_backward,
        in_flight,
        balanced_cuts,
        dense_layers,
        dense_chain,
        keras_layers,
    )
    from manygpu.scratch.splitting.running_a_pipeline import (
        run_plan,
        measured_spans,
        pipeline_gradients,
        pipeline_step,
    )
    from manygpu.scratch.splitting.smaller_bubble import (
        interleaved,
        zero_bubble,
        bubble_without_flush,
        zero_bubble_v,
    )
    from manygpu.scratch.splitting.layerwise import (
        LayerCut,
        COLUMNS,
        ROWS,
        WHOLE,
        cut_tensor,
        column_parallel,
        column_parallel_back,
        row_parallel,
        row_parallel_back,
        split_cross_entropy,
        LayerShards,
        gather_params,
        layerwise_gradients,
        layerwise_step,
    )
    from manygpu.scratch.splitting.transformer import (
        BlockParams,
        transformer_block,
        BLOCK_AXES,
        cut_block,
        join_block,
        split_block,
    )
    from manygpu.scratch.splitting.dtensor import (
        device_mesh,
        dtensor_step,
        DTENSOR_AXES,
        dtensor_lenet,
    )
    from manygpu.scratch.splitting.recomputation import (
        peak_bytes,
        recomputed_layers,
        recomputed,
        kept_activations,
        best_length,
    )
    from manygpu.scratch.splitting.sharded_state import (
        zero_bytes,
        ZeroState,
        held_bytes,
        zero_params,
        zero_gradients,
        zero_update,
        zero_step,
    )
    from manygpu.scratch.splitting.hybrid_meshes import (
        columns,
        rows,
        ON_MESH,
        MeshShards,
        joined_shards,
        sum_gradients,
        predicted_traffic,
        mesh_gradients,
        mesh_step,
    )
    from manygpu.scratch.in_step.asynchronous import (
        Ledger,
        ParameterServer,
        run_workers,
    )
    from manygpu.scratch.in_step.sending_less import (
        TopK,
        Int8,
        OneBit,
        gather_compressed,
        ErrorFeedback,
        LowRank,
    )
    from manygpu.scratch.in_step.meeting_seldom import (
        Delayed,
        local_step,
        Meeting,
        LocalAdam,
    )
    from manygpu.scratch.beyond.many_workers import (
        Ring,
        socket_allreduce,
        join_ring,
        ring_of_workers,
        ring_sums,
        member_step,
    )
    from manygpu.scratch.beyond.worker_dies import (
        Checkpoint,
        DamagedError,
        save_checkpoint,
        newest_checkpoint,
        goodput,
        young_daly,
    )
    from manygpu.scratch.beyond.step_hangs import (
        FlightLog,
        FlightRecorder,
        diagnose,
        Collector,
        compare_fingerprints,
    )
    from manygpu.scratch.beyond.whole_cluster import (
        simulate,
    )
HOMES = {
    "he_normal": "start.one_device",
    "SHAPES": "start.one_device",
    "init_params": "start.one_device",
    "lenet": "start.one_device",
    "cross_entropy": "start.one_device",
    "gradients": "start.one_device",
    "sgd": "start.one_device",
    "Linear": "start.three_ways_to_split",
    "by_network": "start.three_ways_to_split",
    "by_layer": "start.three_ways_to_split",
    "by_data": "start.three_ways_to_split",
    "get_params": "data_parallel.parameters_and_devices",
    "allreduce": "data_parallel.all_reduce",
    "split_batch": "data_parallel.many_devices",
    "cut_batch": "data_parallel.many_devices",
    "allreduce_gradients": "data_parallel.many_devices",
    "take_step": "data_parallel.many_devices",
    "train_batch": "data_parallel.many_devices",
    "train": "data_parallel.many_devices",
    "MessageLog": "data_parallel.collectives",
    "naive_allreduce": "data_parallel.collectives",
    "reduce_scatter": "data_parallel.collectives",
    "all_gather": "data_parallel.collectives",
    "all_to_all": "data_parallel.collectives",
    "ring_allreduce": "data_parallel.collectives",
    "allreduce_with": "data_parallel.collectives",
    "tree_allreduce": "data_parallel.trees_and_hierarchy",
    "halving_doubling_allreduce": "data_parallel.trees_and_hierarchy",
    "hierarchical_allreduce": "data_parallel.trees_and_hierarchy",
    "make_buckets": "data_parallel.hiding_communication",
    "allreduce_buckets": "data_parallel.hiding_communication",
    "accumulate": "data_parallel.gradient_accumulation",
    "GradualWarmup": "data_parallel.large_batches",
    "mirrored_step": "engine.mirrored_strategy",
    "keras_lenet": "engine.mirrored_strategy",
    "mixed_gradients": "engine.mixed_precision",
    "LossScale": "engine.mixed_precision",
    "unscale": "engine.mixed_precision",
    "all_finite": "engine.mixed_precision",
    "step_if_finite": "engine.mixed_precision",
    "allreduce_stored": "engine.mixed_precision",
    "Layer": "splitting.network",
    "lenet_layers": "splitting.network",
    "Model": "splitting.network",
    "Stage": "splitting.network",
    "even_cuts": "splitting.network",
    "make_stages": "splitting.network",
    "Pass": "splitting.network",
    "kept_pass": "splitting.network",
    "gradients_of": "splitting.network",
    "loss_gradient": "splitting.network",
    "ready_batch": "splitting.network",
    "partitioned_gradients": "splitting.network",
    "partitioned_step": "splitting.network",
    "transfers": "splitting.network",
    "held_for_backward": "splitting.network",
    "ask": "splitting.what_a_tensor_means",
    "Mesh": "splitting.program_over_ranks",
    "place_of": "splitting.program_over_ranks",
    "groups_along": "splitting.program_over_ranks",
    "Spread": "splitting.program_over_ranks",
    "along": "splitting.program_over_ranks",
    "spread_out": "splitting.program_over_ranks",
    "part_of": "splitting.program_over_ranks",
    "joined": "splitting.program_over_ranks",
    "Backward": "splitting.program_over_ranks",
    "summed": "splitting.program_over_ranks",
    "Cut": "splitting.program_over_ranks",
    "whole": "splitting.program_over_ranks",
    "WHOLE_LAYER": "splitting.program_over_ranks",
    "batch_norm": "splitting.batch_normalization",
    "guide_cnn_layers": "splitting.batch_normalization",
    "synced_batch_norm": "splitting.batch_normalization",
    "synced_batch_norm_gradients": "splitting.batch_normalization",
    "Op": "splitting.pipeline",
    "Slot": "splitting.pipeline",
    "Plan": "splitting.pipeline",
    "earliest_spans": "splitting.pipeline",
    "Schedule": "splitting.pipeline",
    "forward_only": "splitting.pipeline",
    "bubble": "splitting.pipeline",
    "gpipe": "splitting.pipeline",
    "one_forward_one_backward": "splitting.pipeline",
    "in_flight": "splitting.pipeline",
    "balanced_cuts": "splitting.pipeline",
    "dense_layers": "splitting.pipeline",
    "dense_chain": "splitting.pipeline",
    "keras_layers": "splitting.pipeline",
    "run_plan": "splitting.running_a_pipeline",
    "measured_spans": "splitting.running_a_pipeline",
    "pipeline_gradients": "splitting.running_a_pipeline",
    "pipeline_step": "splitting.running_a_pipeline",
    "interleaved": "splitting.smaller_bubble",
    "zero_bubble": "splitting.smaller_bubble",
    "bubble_without_flush": "splitting.smaller_bubble",
    "zero_bubble_v": "splitting.smaller_bubble",
    "LayerCut": "splitting.layerwise",
    "COLUMNS": "splitting.layerwise",
    "ROWS": "splitting.layerwise",
    "WHOLE": "splitting.layerwise",
    "cut_tensor": "splitting.layerwise",
    "column_parallel": "splitting.layerwise",
    "column_parallel_back": "splitting.layerwise",
    "row_parallel": "splitting.layerwise",
    "row_parallel_back": "splitting.layerwise",
    "split_cross_entropy": "splitting.layerwise",
    "LayerShards": "splitting.layerwise",
    "gather_params": "splitting.layerwise",
    "layerwise_gradients": "splitting.layerwise",
    "layerwise_step": "splitting.layerwise",
    "BlockParams": "splitting.transformer",
    "transformer_block": "splitting.transformer",
    "BLOCK_AXES": "splitting.transformer",
    "cut_block": "splitting.transformer",
    "join_block": "splitting.transformer",
    "split_block": "splitting.transformer",
    "device_mesh": "splitting.dtensor",
    "dtensor_step": "splitting.dtensor",
    "DTENSOR_AXES": "splitting.dtensor",
    "dtensor_lenet": "splitting.dtensor",
    "peak_bytes": "splitting.recomputation",
    "recomputed_layers": "splitting.recomputation",
    "recomputed": "splitting.recomputation",
    "kept_activations": "splitting.recomputation",
    "best_length": "splitting.recomputation",
    "zero_bytes": "splitting.sharded_state",
    "ZeroState": "splitting.sharded_state",
    "held_bytes": "splitting.sharded_state",
    "zero_params": "splitting.sharded_state",
    "zero_gradients": "splitting.sharded_state",
    "zero_update": "splitting.sharded_state",
    "zero_step": "splitting.sharded_state",
    "columns": "splitting.hybrid_meshes",
    "rows": "splitting.hybrid_meshes",
    "ON_MESH": "splitting.hybrid_meshes",
    "MeshShards": "splitting.hybrid_meshes",
    "joined_shards": "splitting.hybrid_meshes",
    "sum_gradients": "splitting.hybrid_meshes",
    "predicted_traffic": "splitting.hybrid_meshes",
    "mesh_gradients": "splitting.hybrid_meshes",
    "mesh_step": "splitting.hybrid_meshes",
    "Ledger": "in_step.asynchronous",
    "ParameterServer": "in_step.asynchronous",
    "run_workers": "in_step.asynchronous",
    "TopK": "in_step.sending_less",
    "Int8": "in_step.sending_less",
    "OneBit": "in_step.sending_less",
    "gather_compressed": "in_step.sending_less",
    "ErrorFeedback": "in_step.sending_less",
    "LowRank": "in_step.sending_less",
    "Delayed": "in_step.meeting_seldom",
    "local_step": "in_step.meeting_seldom",
    "Meeting": "in_step.meeting_seldom",
    "LocalAdam": "in_step.meeting_seldom",
    "Ring": "beyond.many_workers",
    "socket_allreduce": "beyond.many_workers",
    "join_ring": "beyond.many_workers",
    "ring_of_workers": "beyond.many_workers",
    "ring_sums": "beyond.many_workers",
    "member_step": "beyond.many_workers",
    "Checkpoint": "beyond.worker_dies",
    "DamagedError": "beyond.worker_dies",
    "save_checkpoint": "beyond.worker_dies",
    "newest_checkpoint": "beyond.worker_dies",
    "goodput": "beyond.worker_dies",
    "young_daly": "beyond.worker_dies",
    "FlightLog": "beyond.step_hangs",
    "FlightRecorder": "beyond.step_hangs",
    "diagnose": "beyond.step_hangs",
    "Collector": "beyond.step_hangs",
    "compare_fingerprints": "beyond.step_hangs",
    "simulate": "beyond.whole_cluster",
}
__all__ = [*HOMES]


def __getattr__(name):
    """Import the chapter that made `name`, and remember it."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
    return globals()[name]


def __dir__():
    return [*globals(), *HOMES]

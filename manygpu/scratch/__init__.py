"""What the chapters built, in reading order: never edit it by hand."""

import ast
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
        ring_allreduce,
        all_to_all,
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
    from manygpu.scratch.data_parallel.bookkeeping import (
        count,
        evaluate,
        auc_of_counts,
        EarlyStopping,
        epoch_order,
        own_part,
    )
    from manygpu.scratch.engine.mirrored_strategy import (
        mirrored_step,
        keras_lenet,
    )
    from manygpu.scratch.engine.mixed_precision import (
        stored,
        lenet_stored,
        mixed_gradients,
        unscale,
        LossScale,
        all_finite,
        step_if_finite,
        allreduce_stored,
    )
    from manygpu.scratch.splitting.network import (
        Layer,
        lenet_layers,
        Stage,
        even_cuts,
        make_stages,
        Pass,
        kept_pass,
        gradients_of,
        loss_gradient,
        Model,
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
        synced_batch_norm,
        guide_cnn_layers,
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
        measured_spans,
        pipeline_step,
    )
    from manygpu.scratch.splitting.smaller_bubble import (
        interleaved,
        zero_bubble,
        bubble_without_flush,
        zero_bubble_v,
    )
    from manygpu.scratch.splitting.layerwise import (
        in_columns,
        in_rows,
        COLUMNS,
        ROWS,
        WHOLE,
        LayerShards,
        gather_params,
        layerwise_gradients,
        layerwise_step,
    )
    from manygpu.scratch.splitting.layerwise_lenet import (
        LENET_CUTS,
    )
    from manygpu.scratch.splitting.transformer import (
        BlockParams,
        transformer_block,
        block_program,
        block_letters,
        BLOCK,
        block_gradients,
        BLOCK_CUT_TOKENS,
        embedding,
        head,
        gpt_layers,
        own_embedding,
        EMBEDDING,
        HEAD,
        EMBEDDING_CUT_TOKENS,
        HEAD_CUT_TOKENS,
        gpt_cuts,
    )
    from manygpu.scratch.splitting.dtensor import (
        device_mesh,
        dtensor_step,
        DTENSOR_AXES,
        dtensor_lenet,
    )
    from manygpu.scratch.splitting.recomputation import (
        peak_bytes,
        recomputed,
        recomputed_layers,
        kept_activations,
        best_length,
        not_before,
        recomputed_cut,
    )
    from manygpu.scratch.splitting.sharded_state import (
        traffic,
        axis_between,
        zero_bytes,
        ZeroState,
        held_bytes,
        zero_params,
        zero_gradients,
        zero_step,
        zero_update,
    )
    from manygpu.scratch.splitting.hybrid_meshes import (
        MeshShards,
        joined_shards,
        sum_gradients,
        mesh_gradients,
        mesh_step,
        predicted_traffic,
        clip_grads,
        norms_on_mesh,
        is_first,
    )
    from manygpu.scratch.today.long_sequences import (
        token_order,
        arranged,
        restored,
        Meet,
        attention_plan,
        document_of,
        seen_in,
        pairs_of,
        ideal_share,
        Held,
        attend,
        TOKENS,
        HEADS,
        split_attention,
        planned_bytes,
        planned_memory,
        rotated,
        each_head,
        turned_heads,
        next_tokens,
        mean_loss,
        long_block,
        long_cut,
    )
    from manygpu.scratch.today.experts import (
        choose_experts,
        gates_of,
        seats_of,
        into_queues,
        mlp_of_each,
        out_of_queues,
        expert_layer,
        exchange_rows,
        sorted_choices,
        by_expert,
        out_of_rows,
        expert_load,
        mlp_of_sorted,
        dropless_layer,
        balance_loss,
        pushed_bias,
        quantile_bias,
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
        local_step,
        Meeting,
        LocalAdam,
        Delayed,
    )
    from manygpu.scratch.beyond.many_workers import (
        socket_allreduce,
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
        compare_fingerprints,
    )
    from manygpu.scratch.beyond.whole_cluster import (
        simulate,
    )

# Which chapter made each name, read from the imports above, which nothing runs.
HOMES = {
    alias.name: node.module
    for node in ast.walk(ast.parse(__spec__.loader.get_source(__name__)))
    if isinstance(node, ast.ImportFrom) and node.module.startswith("manygpu.scratch.")
    for alias in node.names
}
__all__ = [*HOMES]


def __getattr__(name):
    """Import the chapter that made `name`, and remember it."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(HOMES[name]), name)
    return globals()[name]


def __dir__():
    return [*globals(), *HOMES]

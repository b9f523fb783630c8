#include <fmt/format.h>

#include <algorithm>

#include "planner/program/verify.h"

namespace hydraulis::detail {
namespace {

bool needs_micro_batch(Op op) {
  switch (op) {
    case Op::forward:
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight:
    case Op::recompute:
    case Op::send_activation:
    case Op::receive_activation:
    case Op::send_gradient:
    case Op::receive_gradient:
      return true;
    default:
      return false;
  }
}

/// Distance in stages to the other side of a send or receive, 0 for other instructions.
int peer_distance(Op op) {
  switch (op) {
    case Op::send_activation:
    case Op::receive_gradient:
      return 1;
    case Op::send_gradient:
    case Op::receive_activation:
      return -1;
    default:
      return 0;
  }
}

void verify_instructions(const Program& program, int index, Problems& problems) {
  const Stage& stage = program.stages[index];
  const PipelineProgram& pipeline = program.pipelines[stage.pipeline];
  for (int i = 0; i < static_cast<int>(stage.instructions.size()); ++i) {
    const Instruction& instruction = stage.instructions[i];
    const auto fail = [&](const std::string& what) {
      problems.add("structure: " + describe(program, index, i) + " " + what);
    };
    if (static_cast<int>(instruction.stream) >= kStreams) fail("is on no known stream");
    if (instruction.micro_batch >= static_cast<int>(pipeline.micro_batches.size()) ||
        instruction.micro_batch < (needs_micro_batch(instruction.op) ? 0 : -1)) {
      fail(fmt::format("names a micro-batch outside the pipeline's {}",
                       pipeline.micro_batches.size()));
    }
    for (const int before : instruction.depends_on) {
      if (before < 0 || before >= i) {
        fail(fmt::format("depends on instruction {}, which is not an earlier one", before));
      }
    }
    if (instruction.intra_node_bytes < 0 || instruction.inter_node_bytes < 0 ||
        instruction.transfers < 0) {
      fail("moves a negative number of bytes or messages");
    }
    if (instruction.chunk < 0 || instruction.chunk >= chunks_of(stage)) {
      fail(fmt::format("names run {} of the stage's layers, it has {}", instruction.chunk,
                       chunks_of(stage)));
      continue;
    }
    const int distance = peer_distance(instruction.op);
    const int stages = pipeline.scheme.pp;
    const int neighbour = instruction.chunk * stages + stage.index + distance;
    if (distance != 0 && (neighbour < 0 || neighbour >= stages * chunks_of(stage) ||
                          instruction.peer != pipeline.first_stage + neighbour % stages)) {
      fail(fmt::format("has stage {} as its peer, which is not its neighbour in the pipeline",
                       instruction.peer));
    }
  }
}

void verify_devices(const Program& program, Problems& problems) {
  std::vector<int> user(std::max(program.devices, 0), -1);
  int phase = 0;
  for (int s = 0; s < static_cast<int>(program.stages.size()); ++s) {
    if (const int at = program.pipelines[program.stages[s].pipeline].phase; at != phase) {
      std::fill(user.begin(), user.end(), -1);
      phase = at;
    }
    for (const int device : program.stages[s].devices) {
      if (device < 0 || device >= program.devices) {
        problems.add(fmt::format("places: stage {} uses device {}, expected 0 to {}", s, device,
                                 program.devices - 1));
      } else if (user[device] >= 0) {
        problems.add(
            fmt::format("places: device {} serves stages {} and {}", device, user[device], s));
      } else {
        user[device] = s;
      }
    }
  }
}

}  // namespace

void verify_structure(const Program& program, Problems& problems) {
  if (program.devices < 1 || program.devices_per_node < 1 || program.layers < 1) {
    problems.add("structure: a program needs devices, devices in a node and layers");
    return;
  }
  std::size_t next = 0;
  for (std::size_t p = 0; p < program.pipelines.size(); ++p) {
    const PipelineProgram& pipeline = program.pipelines[p];
    const Scheme& scheme = pipeline.scheme;
    if (scheme.cp < 1 || scheme.tp < 1 || scheme.pp < 1 ||
        pipeline.first_stage != static_cast<int>(next) ||
        static_cast<std::size_t>(scheme.pp) > program.stages.size() - next) {
      problems.add(fmt::format(
          "structure: pipeline {} ({},{},{}) starts at stage {} of {}, expected {} and room for "
          "its "
          "stages",
          p, scheme.cp, scheme.tp, scheme.pp, pipeline.first_stage, program.stages.size(), next));
      return;
    }
    const int phase = p == 0 ? 0 : program.pipelines[p - 1].phase;
    if (pipeline.phase < phase || pipeline.phase > (p == 0 ? 0 : phase + 1)) {
      problems.add(fmt::format("structure: pipeline {} is of phase {} after one of phase {}", p,
                               pipeline.phase, phase));
    }
    for (std::size_t i = 0; i < pipeline.micro_batches.size(); ++i) {
      const MicroBatch& micro_batch = pipeline.micro_batches[i];
      if (micro_batch.sequence_ids.size() != micro_batch.lengths.size()) {
        problems.add(fmt::format("structure: pipeline {} micro-batch {} has {} ids and {} lengths",
                                 p, i, micro_batch.sequence_ids.size(),
                                 micro_batch.lengths.size()));
      }
    }
    for (int s = 0; s < scheme.pp; ++s, ++next) {
      const Stage& stage = program.stages[next];
      if (stage.pipeline != static_cast<int>(p) || stage.index != s) {
        problems.add(
            fmt::format("structure: stage {} says it is stage {} of pipeline {}, expected stage {} "
                        "of pipeline {}",
                        next, stage.index, stage.pipeline, s, p));
        return;
      }
      if (stage.devices.size() != static_cast<std::size_t>(scheme.cp) * scheme.tp) {
        problems.add(fmt::format("places: stage {} has {} devices, its scheme needs {}", next,
                                 stage.devices.size(), scheme.cp * scheme.tp));
      }
      verify_instructions(program, static_cast<int>(next), problems);
    }
  }
  if (next != program.stages.size()) {
    problems.add(
        fmt::format("structure: {} stages belong to no pipeline", program.stages.size() - next));
  }
  verify_devices(program, problems);
}

namespace {

/// How often a stage gathers and reduces each layer it holds.
void verify_reshards(const Program& program, int index, Problems& problems) {
  const Stage& stage = program.stages[index];
  const int first = stage.has_embedding ? kEmbeddingLayer : stage.layer_begin;
  const auto slot = [](int layer) { return layer - kEmbeddingLayer; };
  std::vector<int> gathered(program.layers + 2, 0), reduced(program.layers + 2, 0);
  for (int i = 0; i < static_cast<int>(stage.instructions.size()); ++i) {
    const Instruction& instruction = stage.instructions[i];
    const bool gathers = instruction.op == Op::gather_parameters;
    if (!gathers && instruction.op != Op::reduce_gradients) continue;
    for (int layer = instruction.layer_begin; layer < instruction.layer_end; ++layer) {
      const bool held = holds_layer(stage, layer) ||
                        (layer == kEmbeddingLayer && stage.has_embedding) ||
                        (layer == program.layers && stage.has_head);
      if (!held) {
        problems.add(fmt::format("layers: {} moves layer {}, which the stage does not hold",
                                 describe(program, index, i), layer));
        return;
      }
      ++(gathers ? gathered : reduced)[slot(layer)];
    }
  }
  // Sharded parameters are gathered for every pass of the phase's longest pipeline.
  const bool sharded = program.sharding == ParameterSharding::sharded;
  int steps = 1;
  if (sharded) {
    steps = 0;
    for (const PipelineProgram& pipeline : program.pipelines) {
      if (pipeline.phase != program.pipelines[stage.pipeline].phase) continue;
      steps = std::max(steps, static_cast<int>(pipeline.micro_batches.size()));
    }
  }
  const int gathers = sharded ? 2 * steps : 1;
  const auto expect_once = [&](int layer) {
    if (gathered[slot(layer)] != gathers || reduced[slot(layer)] != steps) {
      problems.add(fmt::format(
          "layers: stage {} gathers layer {} {} times and reduces it {} times, expected {}", index,
          layer, gathered[slot(layer)], reduced[slot(layer)],
          sharded ? fmt::format("{} and {}", gathers, steps) : "once each"));
    }
  };
  if (first == kEmbeddingLayer) expect_once(kEmbeddingLayer);
  for (int layer = 0; layer < program.layers; ++layer) {
    if (holds_layer(stage, layer)) expect_once(layer);
  }
  if (stage.has_head) expect_once(program.layers);
}

}  // namespace

void verify_layers(const Program& program, Problems& problems) {
  for (std::size_t p = 0; p < program.pipelines.size(); ++p) {
    const PipelineProgram& pipeline = program.pipelines[p];
    std::vector<int> held(program.layers, 0);
    for (int s = 0; s < pipeline.scheme.pp; ++s) {
      const int index = pipeline.first_stage + s;
      const Stage& stage = program.stages[index];
      const bool last = s + 1 == pipeline.scheme.pp;
      if (stage.has_embedding != (s == 0) || stage.has_head != last) {
        problems.add(fmt::format(
            "layers: stage {} of pipeline {} has embedding {} and head {}, expected {} and {}", s,
            p, stage.has_embedding, stage.has_head, s == 0, last));
      }
      bool sound = true;
      for (int chunk = 0; chunk < chunks_of(stage); ++chunk) {
        const LayerRange range = layers_of(stage, chunk);
        if (range.begin < 0 || range.end > program.layers || range.begin > range.end) {
          problems.add(fmt::format("layers: stage {} has layers {} to {}, the model has {}", index,
                                   range.begin, range.end - 1, program.layers));
          sound = false;
          break;
        }
        for (int layer = range.begin; layer < range.end; ++layer) ++held[layer];
      }
      if (!sound) continue;
      if (chunks_of(stage) != chunks_of(program.stages[pipeline.first_stage])) {
        problems.add(fmt::format("layers: stage {} has {} runs of layers, the first has {}", index,
                                 chunks_of(stage),
                                 chunks_of(program.stages[pipeline.first_stage])));
      }
      verify_reshards(program, index, problems);
    }
    for (int layer = 0; layer < program.layers; ++layer) {
      if (held[layer] != 1) {
        problems.add(fmt::format("layers: pipeline {} has layer {} {} times, expected once", p,
                                 layer, held[layer]));
      }
    }
  }
}

}  // namespace hydraulis::detail

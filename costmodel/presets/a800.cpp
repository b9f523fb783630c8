#include <span>
#include <utility>

#include "costmodel/presets/models.h"
#include "costmodel/presets/profiles.h"

// Measured on A800-80GB, 8 devices a node, by the authors of Hydraulis: github lhy101/Hydraulis,
// examples/strategy/build_parallel_scheme_space_{7b,13b,32b}.py. The numbers stand as published, in
// milliseconds: t = a·s² + b·s summed over a micro-batch's sequences, + c per micro-batch, forward
// and backward of one stage together.

namespace hydraulis::detail {
namespace {

struct Row {
  int tp;
  int pp;
  double a_milliseconds;
  double b_milliseconds;
  double c_milliseconds;
};

constexpr Row kLlama7bRows[] = {
    {1, 2, 1.37240947e-06, 0.094647781, 15.047058823529596},
    {1, 4, 9.55466937e-07, 0.0455224977, 14.273684210526312},
    {1, 8, 4.71839253e-07, 0.0237632988, 7.743478260869608},
    {2, 1, 2.05448457e-06, 0.0967076442, 65.1789772727277},
    {2, 2, 1.02663458e-06, 0.0490736142, 31.866721513780817},
    {2, 4, 5.24734001e-07, 0.0249896203, 17.471602082128697},
    {2, 8, 2.61470756e-07, 0.0132181135, 8.658958432871657},
    {4, 1, 1.0304334e-06, 0.0564777342, 56.697764041516166},
    {4, 2, 5.16172276e-07, 0.0285116473, 28.989771080846594},
    {4, 4, 2.579195e-07, 0.0146761838, 14.982966035778986},
    {8, 1, 5.06885473e-07, 0.0366182377, 44.317477753058256},
    {8, 2, 2.53715597e-07, 0.0184675589, 22.976470588235316},
    {16, 1, 3.01808129e-07, 0.0292311085, 65.23634593993279},
};

constexpr Row kLlama13bRows[] = {
    {1, 1, 1.03359006e-05, 0.312262914, 91.37538699690367},
    {1, 2, 2.33212956e-06, 0.168111063, 37.86567681070392},
    {1, 4, 1.25504641e-06, 0.0851150701, 20.19215142652746},
    {1, 8, 7.57890093e-07, 0.0424526643, 13.324264844697922},
    {2, 1, 2.93719955e-06, 0.180090146, 75.87395881841167},
    {2, 2, 1.53436151e-06, 0.0900918438, 40.48058869844306},
    {2, 4, 7.97420826e-07, 0.0452101722, 23.26089691411994},
    {2, 8, 4.03752453e-07, 0.0233333496, 11.803803239246747},
    {4, 1, 1.62871921e-06, 0.0997626395, 76.43818547098908},
    {4, 2, 8.12710963e-07, 0.0500755835, 39.53936966798551},
    {4, 4, 3.94357054e-07, 0.0259475095, 18.2104987061378},
    {8, 1, 6.59233262e-07, 0.0666817542, 50.37694379271386},
};

constexpr Row kLlama32bRows[] = {
    {1, 2, 0, 0.48988971, 22.882352941176805},
    {1, 4, 9.39192752e-07, 0.212596087, 35.99468155683377},
    {2, 1, 2.97455561e-05, 0.386957078, 156.2008928571429},
    {2, 2, 3.73416233e-06, 0.213060059, 80.71665943745563},
    {2, 4, 1.97033746e-06, 0.106558744, 42.94488582340546},
    {2, 6, 1.31605318e-06, 0.0718051676, 28.616273292576068},
    {4, 1, 3.86950049e-06, 0.238996833, 120.69476474631483},
    {4, 2, 2.04563898e-06, 0.118301177, 65.4239195557368},
    {4, 4, 1.05779156e-06, 0.0592119769, 35.33534922208071},
    {4, 6, 7.02993498e-07, 0.039850898, 24.07199162618781},
    {8, 1, 2.12548718e-06, 0.141411593, 122.91021345581066},
    {8, 2, 1.06789378e-06, 0.071058246, 61.76782590869129},
    {8, 3, 6.85518086e-07, 0.0482754236, 38.06972982282218},
    {8, 4, 4.91076016e-07, 0.0370804063, 25.442409002069667},
    {16, 1, 1.37779723e-06, 0.102435387, 145.74761115393085},
};

constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGiB = 1024.0 * kMiB;
constexpr double kMilli = 1e-3;

PublishedMemory memory(std::map<int, double> activation_bytes_by_tp, double state_bytes,
                       double safety_gib) {
  PublishedMemory result;
  result.activation_bytes_by_tp = std::move(activation_bytes_by_tp);
  result.state_bytes = state_bytes;
  result.optimizer_share = 0.75;
  result.constant_gap_bytes = 5000 * kMiB;
  result.safety_bytes = safety_gib * kGiB;
  result.device_bound_bytes = 81252 * kMiB;
  return result;
}

Profile measured(const std::string& model, std::span<const Row> rows) {
  Profile profile;
  profile.name = "a800-" + model;
  profile.device = "a800";
  profile.origin =
      "github lhy101/Hydraulis, build_parallel_scheme_space: measured by the paper's authors on "
      "A800-80GB, 8 a node";
  profile.model = *model_preset(model);
  for (const Row& row : rows) {
    Scheme scheme;
    scheme.tp = row.tp;
    scheme.pp = row.pp;
    profile.schemes.push_back({scheme, row.a_milliseconds * kMilli, row.b_milliseconds * kMilli,
                               row.c_milliseconds * kMilli});
  }
  // Whole pipelined runs of 16 micro-batches, without gradient synchronisation or update.
  profile.contains_tensor_parallel_communication = true;
  profile.contains_pipeline_communication = false;
  profile.limits = {
      "no context parallelism was measured",
      "no activation recomputation was measured",
      "tensor-parallel collectives are inside the times (whole pipelined runs of 16 micro-batches "
      "were measured, without gradient synchronisation)",
      "stage-to-stage transfers are taken to be outside the times and are charged on top: the "
      "cautious reading, since part of them may have been measured",
  };
  return profile;
}

Profile a800_llama_7b() {
  Profile profile = measured("llama-7b", kLlama7bRows);
  profile.min_tokens_by_tp = {{1, 384}, {2, 512}, {4, 768}, {8, 1024}, {16, 1280}};
  profile.memory = memory({{1, 38}, {2, 39}, {4, 42}, {8, 48}, {16, 61}}, 210, 6);
  return profile;
}

Profile a800_llama_13b() {
  Profile profile = measured("llama-13b", kLlama13bRows);
  profile.min_tokens_by_tp = {{1, 640}, {2, 896}, {4, 1280}, {8, 1536}};
  profile.memory = memory({{1, 38}, {2, 39}, {4, 39}, {8, 48}}, 210, 8);
  return profile;
}

Profile a800_llama_32b() {
  Profile profile = measured("llama-32b", kLlama32bRows);
  profile.min_tokens_by_tp = {{1, 384}, {2, 512}, {4, 768}, {8, 1024}, {16, 1280}};
  profile.memory = memory({{1, 36}, {2, 36}, {4, 37}, {8, 42}, {16, 50}}, 201, 10);
  profile.limits.push_back(
      "the rows of (1,1,2) (a = 0) and (1,2,1) (a = 3e-5 ms) are badly fitted: they barely fit in "
      "memory; kept as published");
  return profile;
}

}  // namespace

std::optional<Profile> profile_preset(const std::string& name) {
  if (name == "a800-llama-7b") return a800_llama_7b();
  if (name == "a800-llama-13b") return a800_llama_13b();
  if (name == "a800-llama-32b") return a800_llama_32b();
  return std::nullopt;
}

std::string profile_preset_names() { return "a800-llama-7b, a800-llama-13b, a800-llama-32b"; }

}  // namespace hydraulis::detail

#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "planner/proposal.h"

namespace hydraulis::test {

/// Schemes of the A800 measurements published with the paper (milliseconds), and the longest
/// micro-batch by the published memory formula, written out here so that tests of the planner do
/// not depend on the cost model.
struct A800Scheme {
  int tp, pp;
  double a, b, c;
};

struct A800Model {
  int layers, hidden, vocab;
  double activation_bytes[5];  // by log2(tp)
  double state_bytes, safety_gib;
  std::vector<A800Scheme> schemes;
};

inline A800Model a800_7b() {
  return {32,
          4096,
          30592,
          {38, 39, 42, 48, 61},
          210,
          6,
          {{1, 2, 1.37240947e-06, 0.094647781, 15.047058823529596},
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
           {16, 1, 3.01808129e-07, 0.0292311085, 65.23634593993279}}};
}

inline A800Model a800_32b() {
  return {60,
          6656,
          30592,
          {36, 36, 37, 42, 50},
          201,
          10,
          {{1, 2, 0, 0.48988971, 22.882352941176805},
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
           {16, 1, 1.37779723e-06, 0.102435387, 145.74761115393085}}};
}

inline std::vector<SchemeOption> a800_options(const A800Model& model, OptimizerLayout optimizer) {
  constexpr double kMib = 1 << 20;
  constexpr double kShare = 0.75;
  const auto embedding = [](int pp) { return pp == 1 ? 32.0 : 16.0; };
  std::vector<SchemeOption> options;
  for (const A800Scheme& s : model.schemes) {
    const double h = model.hidden;
    const double layers = model.layers;
    const double words = h * model.vocab;
    const double fixed =
        layers / optimizer.pp * (h * h / optimizer.tp) * model.state_bytes * kShare / optimizer.dp +
        layers / s.pp * (h * h / s.tp) * model.state_bytes * (1 - kShare) +
        words / optimizer.tp * embedding(optimizer.pp) * kShare / optimizer.dp +
        words / s.tp * embedding(s.pp) * (1 - kShare);
    const double room = (81252 - 5000 - 1024 * model.safety_gib) * kMib - fixed;
    const auto tp = static_cast<std::size_t>(std::lround(std::log2(s.tp)));
    const double each = layers * h / s.tp * model.activation_bytes[tp];
    const auto tokens = room > 0 ? static_cast<std::int64_t>(room / each) / 128 * 128 : 0;
    options.push_back(
        {Scheme{1, s.tp, s.pp, Recompute::none, {}}, {s.a / 1e3, s.b / 1e3, s.c / 1e3}, tokens});
  }
  return options;
}

}  // namespace hydraulis::test

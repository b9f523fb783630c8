#include "costmodel/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/error.h"

namespace hydraulis {
namespace {

constexpr int kMostKnots = 6;

double weight_of(const Timing& time) {
  return fit_weight(time.median_seconds, time.low_seconds, time.high_seconds);
}

/// Samples of one shape.
KernelFit fit_attention(const std::vector<const KernelSample*>& samples) {
  KernelFit fit;
  fit.shape = samples.front()->shape;
  std::vector<std::vector<double>> columns(3);
  std::vector<double> target;
  std::vector<double> measured;
  for (const KernelSample* sample : samples) {
    const double seconds = sample->time.median_seconds;
    const double weight = weight_of(sample->time);
    const auto tokens = static_cast<double>(sample->tokens);
    columns[0].push_back(weight * tokens * static_cast<double>(sample->length) / seconds);
    columns[1].push_back(weight * tokens / seconds);
    columns[2].push_back(weight / seconds);
    target.push_back(weight);
    measured.push_back(seconds);
  }
  const std::vector<double> found = non_negative_least_squares(columns, target);
  fit.a = found[0];
  fit.b = found[1];
  fit.c = found[2];
  const auto quality = [&] {
    std::vector<double> predicted;
    for (const KernelSample* sample : samples) {
      const auto tokens = static_cast<double>(sample->tokens);
      predicted.push_back(fit.seconds(tokens, tokens * static_cast<double>(sample->length)));
    }
    return fit_quality(predicted, measured);
  };
  fit.quality = quality();
  if (fit.quality.mean_error <= KernelFit::kTableFrom) return fit;
  // Short sequences run at another rate than a and b say: time a token by length.
  std::vector<FitPoint> points;
  for (const KernelSample* sample : samples) {
    const double seconds = sample->time.median_seconds;
    if (seconds <= fit.c) continue;
    points.push_back({static_cast<double>(sample->length),
                      (seconds - fit.c) / static_cast<double>(sample->tokens),
                      weight_of(sample->time)});
  }
  if (points.size() < 2) return fit;
  const KernelFit lines = fit;
  fit.curve = fit_monotone(points, kMostKnots, "attention").curve;
  fit.by_length = true;
  fit.quality = quality();
  return fit.quality.mean_error < lines.quality.mean_error ? fit : lines;
}

KernelFit fit_rows(const std::vector<const KernelSample*>& samples) {
  std::vector<FitPoint> points;
  for (const KernelSample* sample : samples) {
    points.push_back({static_cast<double>(sample->tokens), sample->time.median_seconds,
                      weight_of(sample->time)});
  }
  CurveFit found = fit_monotone(points, kMostKnots, to_string(samples.front()->shape.kernel));
  KernelFit fit;
  fit.curve = std::move(found.curve);
  fit.quality = found.quality;
  return fit;
}

/// What a kernel's time is proportional to for the same tokens.
double work_per_token(const KernelShape& shape) {
  if (shape.width > 0) return static_cast<double>(shape.width);
  if (shape.heads > 0) return static_cast<double>(shape.heads) * shape.head_dim;
  return static_cast<double>(shape.inputs) * static_cast<double>(shape.outputs);
}

double log_ratio(double a, double b) {
  return std::log(std::max(a, 1.0)) - std::log(std::max(b, 1.0));
}

double distance(const KernelShape& a, const KernelShape& b) {
  const auto d = [](auto x, auto y) {
    return log_ratio(static_cast<double>(x), static_cast<double>(y));
  };
  return std::hypot(std::hypot(d(a.inputs, b.inputs), d(a.outputs, b.outputs), d(a.width, b.width)),
                    std::hypot(d(a.heads, b.heads), d(a.kv_heads, b.kv_heads),
                               // Head sizes change the inner loops more than head counts do.
                               4 * d(a.head_dim, b.head_dim)));
}

/// `what()` names it; queries inside the range, nearly all, do not ask.
template <typename What>
void note_range(FitUse& use, const What& what, double value, double from, double to) {
  if (value <= 0 || (value >= from && value <= to)) return;
  const double ratio = value > to ? value / to : value / from;
  const auto [at, inserted] = use.beyond.try_emplace(what(), ratio);
  if (!inserted && std::abs(std::log(ratio)) > std::abs(std::log(at->second))) at->second = ratio;
}

double known_seconds(const KernelFit& fit, double tokens, double sum_squares, FitUse& use) {
  const auto name = [&] { return to_string(fit.shape); };
  note_range(use, name, tokens, fit.least_tokens, fit.most_tokens);
  if (is_attention(fit.shape.kernel) && tokens > 0) {
    note_range(
        use, [&] { return name() + ", sequence length"; }, sum_squares / tokens, 0, fit.longest);
  }
  return fit.seconds(tokens, sum_squares);
}

/// Bytes that a ring puts on each link and steps that it takes, relative to the size.
std::pair<double, double> ring(Collective operation, int ranks) {
  const double n = ranks;
  switch (operation) {
    case Collective::all_reduce:
      return {2 * (n - 1) / n, 2 * (n - 1)};
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::all_to_all:
      return {(n - 1) / n, n - 1};
    default:
      return {1, std::max(1.0, std::ceil(std::log2(n)))};
  }
}

std::string name_of(Collective operation, int ranks, int nodes) {
  return fmt::format("{} of {} ranks on {} node{}", to_string(operation), ranks, nodes,
                     nodes == 1 ? "" : "s");
}

}  // namespace

double KernelFit::seconds(double tokens, double sum_squares) const {
  if (!is_attention(shape.kernel)) return curve.at(tokens);
  if (!by_length) return a * sum_squares + b * tokens + c;
  return tokens > 0 ? c + tokens * curve.at(sum_squares / tokens) : c;
}

OperatorFits fit_operators(const OperatorProfile& profile, const std::string& where) {
  check_operator_profile(profile, where);
  OperatorFits fits;
  std::vector<std::vector<const KernelSample*>> groups;
  for (const KernelSample& sample : profile.kernels) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& known) {
      return known.front()->shape == sample.shape && known.front()->data_type == sample.data_type;
    });
    if (group == groups.end()) group = groups.insert(groups.end(), {{}});
    group->push_back(&sample);
  }
  for (const auto& group : groups) {
    const KernelSample& first = *group.front();
    KernelFit fit = is_attention(first.shape.kernel) ? fit_attention(group) : fit_rows(group);
    fit.shape = first.shape;
    fit.data_type = first.data_type;
    fit.least_tokens = fit.most_tokens = static_cast<double>(first.tokens);
    for (const KernelSample* sample : group) {
      fit.least_tokens = std::min(fit.least_tokens, static_cast<double>(sample->tokens));
      fit.most_tokens = std::max(fit.most_tokens, static_cast<double>(sample->tokens));
      fit.longest = std::max(fit.longest, static_cast<double>(sample->length));
    }
    fits.kernels.push_back(std::move(fit));
  }
  std::map<std::tuple<Collective, int, int>, std::vector<FitPoint>> collectives;
  for (const CollectiveSample& sample : profile.collectives) {
    collectives[{sample.operation, sample.ranks, sample.nodes}].push_back(
        {static_cast<double>(sample.bytes), sample.time.median_seconds, weight_of(sample.time)});
  }
  for (const auto& [key, points] : collectives) {
    const auto [operation, ranks, nodes] = key;
    CurveFit fit = fit_monotone(points, kMostKnots, to_string(operation));
    fits.collectives.push_back({operation, ranks, nodes, std::move(fit.curve), fit.quality});
  }
  std::map<CopyDirection, std::vector<FitPoint>> copies;
  for (const CopySample& sample : profile.copies) {
    copies[sample.direction].push_back(
        {static_cast<double>(sample.bytes), sample.time.median_seconds, weight_of(sample.time)});
  }
  for (const auto& [direction, points] : copies) {
    CurveFit fit = fit_monotone(points, kMostKnots, to_string(direction));
    fits.copies.push_back({direction, std::move(fit.curve), fit.quality});
  }
  return fits;
}

std::vector<std::string> bad_fits(const OperatorFits& fits) {
  std::vector<std::string> lines;
  const auto check = [&](const std::string& what, const FitQuality& quality) {
    if (!quality.bad()) return;
    lines.push_back(
        fmt::format("{}: badly fitted, off by {:.0f} % on average and {:.0f} % at most "
                    "over {} points",
                    what, 100 * quality.mean_error, 100 * quality.max_error, quality.points));
  };
  for (const KernelFit& fit : fits.kernels) check(to_string(fit.shape), fit.quality);
  for (const CollectiveFit& fit : fits.collectives) {
    check(name_of(fit.operation, fit.ranks, fit.nodes), fit.quality);
  }
  for (const CopyFit& fit : fits.copies) {
    check(fmt::format("copies {}", to_string(fit.direction)), fit.quality);
  }
  return lines;
}

std::vector<std::string> FitUse::missing_sentences() const {
  std::vector<std::string> lines;
  for (const std::string& what : missing) {
    lines.push_back(what + ": never measured, taken to need no time");
  }
  return lines;
}

std::vector<std::string> FitUse::borrowed_sentences() const {
  std::vector<std::string> lines;
  for (const auto& [what, from] : borrowed) {
    lines.push_back(fmt::format("{}: not measured, taken from {}", what, from));
  }
  return lines;
}

std::vector<std::string> FitUse::beyond_sentences() const {
  std::vector<std::string> lines;
  for (const auto& [what, ratio] : beyond) {
    lines.push_back(
        ratio > 1
            ? fmt::format("{}: used up to {:.3g} times the largest size measured, extrapolated "
                          "along the fit's last slope",
                          what, ratio)
            : fmt::format("{}: used down to {:.3g} times the smallest size measured, extrapolated "
                          "along the fit's first slope",
                          what, ratio));
  }
  return lines;
}

double kernel_seconds(const OperatorFits& fits, const KernelShape& shape, double tokens,
                      double sum_squares, FitUse& use) {
  for (const KernelFit& fit : fits.kernels) {
    if (fit.shape == shape) return known_seconds(fit, tokens, sum_squares, use);
  }
  // Weighted by nearness, each shape's time in proportion to the work: never falls with tokens.
  double weights = 0;
  double seconds = 0;
  for (const KernelFit& fit : fits.kernels) {
    if (fit.shape.kernel != shape.kernel) continue;
    const double away = distance(fit.shape, shape);
    const double weight = 1 / (1e-3 + away * away);
    weights += weight;
    seconds += weight * known_seconds(fit, tokens, sum_squares, use) * work_per_token(shape) /
               work_per_token(fit.shape);
  }
  if (weights > 0) {
    use.borrowed.emplace(to_string(shape), "other shapes of the kernel");
    return seconds / weights;
  }
  if (shape.inputs > 0 || is_attention(shape.kernel)) {
    throw InputError("the profile has no measurement of {}, which {} needs",
                     to_string(shape.kernel), to_string(shape));
  }
  use.missing.insert(to_string(shape.kernel));
  return 0;
}

std::optional<double> collective_seconds(const OperatorFits& fits, Collective operation, int ranks,
                                         int nodes, double bytes, FitUse& use, double latency_scale,
                                         double bandwidth_scale) {
  const CollectiveFit* nearest = nullptr;
  const auto away = [&](const CollectiveFit& fit) {
    return std::tuple((fit.nodes > 1) != (nodes > 1), std::abs(log_ratio(fit.ranks, ranks)),
                      std::abs(log_ratio(fit.nodes, nodes)));
  };
  for (const CollectiveFit& fit : fits.collectives) {
    if (fit.operation != operation) continue;
    if (nearest == nullptr || away(fit) < away(*nearest)) nearest = &fit;
  }
  if (nearest == nullptr) return std::nullopt;
  const auto name = [&] { return name_of(operation, ranks, nodes); };
  double steps = 1;
  if (nearest->ranks != ranks || nearest->nodes != nodes) {
    use.borrowed.emplace(name(), name_of(operation, nearest->ranks, nearest->nodes));
    const auto [share, length] = ring(operation, ranks);
    const auto [known_share, known_length] = ring(operation, nearest->ranks);
    bytes *= share / known_share;
    steps = length / known_length;
  }
  note_range(use, name, bytes, nearest->curve.measured_from, nearest->curve.measured_to);
  return latency_scale * steps * nearest->curve.start +
         (nearest->curve.at(bytes) - nearest->curve.start) / bandwidth_scale;
}

}  // namespace hydraulis

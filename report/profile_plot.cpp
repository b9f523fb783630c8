#include "report/profile_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "costmodel/fit.h"
#include "report/profile_names.h"

namespace hydraulis {
namespace {

constexpr int kColumns = 64;
constexpr int kRows = 14;
constexpr int kMargin = 10;

/// Maps values to cells of a logarithmic axis.
struct Axis {
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
  int cells = 1;

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  int cell(double value) const {
    if (high <= low) return 0;
    const double share = std::log(value / low) / std::log(high / low);
    return std::clamp(static_cast<int>(std::lround(share * (cells - 1))), 0, cells - 1);
  }
  double value(int cell) const {
    return low * std::pow(high / low, static_cast<double>(cell) / (cells - 1));
  }
};

bool drawn(double value) { return std::isfinite(value) && value > 0; }

/// Three digits and a metric prefix: "1.02k".
std::string tick(double value) {
  constexpr const char* kPrefixes[] = {"n", "u", "m", "", "k", "M", "G", "T"};
  int step = 3;
  while (value >= 999.5 && step < 7) value /= 1000, ++step;
  while (value < 1 && step > 0) value *= 1000, --step;
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, digits, kPrefixes[step]);
}

Plot kernel_plot(const OperatorProfile& profile, const KernelFit& fit) {
  Plot plot;
  plot.title = kernel_name(fit.shape, fit.data_type);
  const bool by_length = is_attention(fit.shape.kernel);
  plot.x = by_length ? "tokens of one sequence" : "tokens";
  plot.y = "seconds";
  for (const KernelSample& sample : profile.kernels) {
    if (!(sample.shape == fit.shape) || sample.data_type != fit.data_type) continue;
    if (by_length && sample.length != sample.tokens) continue;
    plot.points.emplace_back(static_cast<double>(sample.tokens), sample.time.median_seconds);
  }
  plot.curve = [fit, by_length](double tokens) {
    return fit.seconds(tokens, by_length ? tokens * tokens : 0);
  };
  return plot;
}

Plot collective_plot(const OperatorProfile& profile, const CollectiveFit& fit) {
  Plot plot;
  plot.title = group_name(fit.operation, fit.ranks, fit.nodes);
  plot.x = "bytes";
  plot.y = "seconds";
  for (const CollectiveSample& sample : profile.collectives) {
    if (sample.operation == fit.operation && sample.ranks == fit.ranks &&
        sample.nodes == fit.nodes) {
      plot.points.emplace_back(static_cast<double>(sample.bytes), sample.time.median_seconds);
    }
  }
  plot.curve = [fit](double bytes) { return fit.curve.at(bytes); };
  return plot;
}

/// The most telling ones.
std::vector<Plot> usual_plots(const OperatorProfile& profile, const OperatorFits& fits) {
  const KernelFit* product = nullptr;
  const KernelFit* attention = nullptr;
  const CollectiveFit* reduce = nullptr;
  const auto size = [](const KernelFit& fit) { return fit.shape.inputs * fit.shape.outputs; };
  for (const KernelFit& fit : fits.kernels) {
    const bool forward = fit.shape.kernel == Kernel::gemm_forward;
    if (forward && (product == nullptr || size(fit) > size(*product))) product = &fit;
    if (fit.shape.kernel == Kernel::attention && attention == nullptr) attention = &fit;
  }
  for (const CollectiveFit& fit : fits.collectives) {
    const bool widest = reduce == nullptr || fit.ranks > reduce->ranks;
    if (fit.operation == Collective::all_reduce && widest) reduce = &fit;
  }
  std::vector<Plot> plots;
  if (product != nullptr) plots.push_back(kernel_plot(profile, *product));
  if (attention != nullptr) plots.push_back(kernel_plot(profile, *attention));
  if (reduce != nullptr) plots.push_back(collective_plot(profile, *reduce));
  return plots;
}

}  // namespace

std::string draw(const Plot& plot) {
  Axis x;
  Axis y;
  x.cells = kColumns;
  y.cells = kRows;
  for (const auto& [at, value] : plot.points) {
    x.include(at);
    y.include(value);
  }
  std::vector<double> curve;
  for (int column = 0; column < kColumns; ++column) {
    curve.push_back(plot.curve(x.value(column)));
    if (drawn(curve.back())) y.include(curve.back());
  }
  std::vector<std::vector<std::string>> cells(kRows, std::vector<std::string>(kColumns, " "));
  for (int column = 0; column < kColumns; ++column) {
    if (drawn(curve[column])) cells[y.cell(curve[column])][column] = "·";
  }
  for (const auto& [at, value] : plot.points) {
    std::string& cell = cells[y.cell(value)][x.cell(at)];
    cell = cell == "·" || cell == "•" ? "•" : "o";
  }
  std::string text = fmt::format("{}\n{:>{}} {}\n", plot.title, "", kMargin, plot.y);
  for (int row = kRows - 1; row >= 0; --row) {
    const bool labelled = row == kRows - 1 || row == kRows / 2 || row == 0;
    text += fmt::format("{:>{}} │", labelled ? tick(y.value(row)) : "", kMargin);
    for (const std::string& cell : cells[row]) text += cell;
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  text += fmt::format("{:>{}} └", "", kMargin);
  for (int column = 0; column < kColumns; ++column) text += "─";
  text += fmt::format("\n{:>{}}  {:<{}}{:>{}}\n", "", kMargin, tick(x.low), kColumns / 2,
                      tick(x.high) + " " + plot.x, kColumns / 2);
  return text + fmt::format("{:>{}}  o sample, · fit, • both\n", "", kMargin);
}

std::string profile_plots(const OperatorProfile& profile, const std::string& where,
                          const std::string& what) {
  const OperatorFits fits = fit_operators(profile, where);
  std::vector<Plot> plots;
  if (what.empty()) {
    plots = usual_plots(profile, fits);
  } else {
    for (const KernelFit& fit : fits.kernels) {
      if (kernel_name(fit.shape, fit.data_type).find(what) != std::string::npos) {
        plots.push_back(kernel_plot(profile, fit));
      }
    }
    for (const CollectiveFit& fit : fits.collectives) {
      if (group_name(fit.operation, fit.ranks, fit.nodes).find(what) != std::string::npos) {
        plots.push_back(collective_plot(profile, fit));
      }
    }
    if (plots.empty()) {
      throw InputError(
          "--plot: nothing in {} has a name with '{}' in it, such as all_reduce or "
          "gemm_forward",
          where, what);
    }
  }
  std::string text;
  for (const Plot& plot : plots) {
    if (plot.points.empty()) continue;
    text += (text.empty() ? "" : "\n") + draw(plot);
  }
  return text;
}

}  // namespace hydraulis

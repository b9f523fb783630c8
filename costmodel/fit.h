#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "costmodel/fit_curve.h"
#include "costmodel/operator_profile.h"

namespace hydraulis {

/// Time of a kernel shape. All kernels but attention: seconds = curve(tokens). Attention:
/// a·Σs² + b·Σs + c, or, where that is off by more than kTableFrom on average,
/// c + Σs·curve(Σs²/Σs) with the curve in seconds a token by mean length.
struct KernelFit {
  static constexpr double kTableFrom = 0.05;
  KernelShape shape;
  std::string data_type;
  MonotoneCurve curve;
  double a = 0;            ///< seconds per token²
  double b = 0;            ///< seconds per token
  double c = 0;            ///< seconds per call
  bool by_length = false;  ///< attention: the curve is used, not a and b
  double least_tokens = 0;
  double most_tokens = 0;
  double longest = 0;  ///< attention: longest sequence measured
  FitQuality quality;

  /// Attention needs sum_squares, the others ignore it.
  double seconds(double tokens, double sum_squares = 0) const;
};

/// Time of a collective by its bytes. The latency (curve.start) is not negative, every size regime
/// has a positive bandwidth, and more bytes never take less time.
struct CollectiveFit {
  Collective operation = Collective::all_reduce;
  int ranks = 0;
  int nodes = 1;
  MonotoneCurve curve;
  FitQuality quality;

  double latency_seconds() const { return curve.start; }
  /// Of the largest regime.
  double bytes_per_second() const { return 1 / curve.slopes.back(); }
};

struct CopyFit {
  CopyDirection direction = CopyDirection::host_to_device;
  MonotoneCurve curve;
  FitQuality quality;
};

struct OperatorFits {
  std::vector<KernelFit> kernels;  ///< one for each shape and data type, in order of first samples
  std::vector<CollectiveFit> collectives;
  std::vector<CopyFit> copies;
};

/// Fits of everything measured. Throws InputError (see check_operator_profile).
OperatorFits fit_operators(const OperatorProfile& profile, const std::string& where);

/// The fits that give their own points back badly, one sentence each.
std::vector<std::string> bad_fits(const OperatorFits& fits);

/// What predictions had to assume, gathered over queries.
struct FitUse {
  std::map<std::string, double> beyond;  ///< of what → how many times the measured range, at most
  std::map<std::string, std::string> borrowed;  ///< shape or group → what it was taken from
  std::set<std::string> missing;                ///< kinds that were never measured

  /// One sentence for each, for people.
  std::vector<std::string> missing_sentences() const;
  std::vector<std::string> borrowed_sentences() const;
  std::vector<std::string> beyond_sentences() const;
};

/// Seconds of a kernel call. Sizes outside the measured range follow the fit's last slope (noted in
/// `use`). A shape that was not measured takes the times of others of its kernel in proportion to
/// its work, the nearest shapes weighing most (noted). A kernel of which nothing was measured takes
/// no time (noted as missing), but products and attention throw InputError.
double kernel_seconds(const OperatorFits& fits, const KernelShape& shape, double tokens,
                      double sum_squares, FitUse& use);

/// Seconds of a collective; a group size that was not measured takes the nearest one's curve (of
/// the same operation, and where possible spanning as many nodes) with the bytes and the steps of a
/// ring in proportion (noted). Nothing when the operation was never measured. The scales multiply
/// the latency and divide the rest.
std::optional<double> collective_seconds(const OperatorFits& fits, Collective operation, int ranks,
                                         int nodes, double bytes, FitUse& use,
                                         double latency_scale = 1, double bandwidth_scale = 1);

}  // namespace hydraulis

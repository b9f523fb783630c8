#include "costmodel/public_fit.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

namespace hydraulis {
namespace {

using Vector = Eigen::VectorXd;
using Matrix = Eigen::MatrixXd;

constexpr double kStep = 1e-5;        // of a logarithm, for derivatives
constexpr double kSmallGain = 1e-10;  // of the loss, below which the fit has ended
constexpr double kMostDamping = 1e12;
constexpr double kLongestStep = 2;  // of a logarithm in one iteration

class PositiveFit {
 public:
  PositiveFit(const std::function<std::vector<double>(std::span<const double>)>& model,
              std::span<const double> measured, std::span<const double> start,
              const PositiveFitOptions& options)
      : model_(model), options_(options), log_measured_(size(measured)), start_(size(start)) {
    for (Eigen::Index i = 0; i < log_measured_.size(); ++i)
      log_measured_[i] = std::log(at(measured, i));
    for (Eigen::Index i = 0; i < start_.size(); ++i) start_[i] = std::log(at(start, i));
  }

  std::vector<double> run() {
    Vector x = start_;
    Vector errors = residuals(x);
    double loss = total(x, errors);
    double damping = 1e-3;
    for (int i = 0; i < options_.iterations && damping < kMostDamping; ++i) {
      const Matrix jacobian = derivatives(x, errors);
      const Vector weights = errors.unaryExpr([&](double e) { return weight(e); });
      Matrix normal = jacobian.transpose() * weights.asDiagonal() * jacobian;
      Vector gradient = jacobian.transpose() * weights.cwiseProduct(errors);
      const double pull = options_.prior * options_.prior;
      normal.diagonal().array() += pull;
      gradient += pull * (x - start_);
      bool better = false;
      while (!better && damping < kMostDamping) {
        Matrix damped = normal;
        damped.diagonal() *= 1 + damping;
        damped.diagonal().array() += 1e-12;
        Vector step = -damped.ldlt().solve(gradient);
        step *= std::min(1.0, kLongestStep / std::max(step.cwiseAbs().maxCoeff(), 1e-300));
        const Vector tried = x + step;
        const Vector tried_errors = residuals(tried);
        const double tried_loss = total(tried, tried_errors);
        better = tried_loss < loss;
        if (!better) {
          damping *= 4;
          continue;
        }
        const bool ended = loss - tried_loss < kSmallGain * loss;
        x = tried;
        errors = tried_errors;
        loss = tried_loss;
        damping = std::max(damping / 3, 1e-9);
        if (ended) return values(x);
      }
    }
    return values(x);
  }

 private:
  static Eigen::Index size(std::span<const double> values) {
    return static_cast<Eigen::Index>(values.size());
  }
  static double at(std::span<const double> values, Eigen::Index i) {
    return values[static_cast<std::size_t>(i)];
  }
  static std::vector<double> values(const Vector& logarithms) {
    std::vector<double> result;
    for (const double x : logarithms) result.push_back(std::exp(x));
    return result;
  }

  /// Huber: the weight of a squared error.
  double weight(double error) const {
    return std::abs(error) <= options_.outlier ? 1 : options_.outlier / std::abs(error);
  }
  double total(const Vector& x, const Vector& errors) const {
    double sum = options_.prior * options_.prior * (x - start_).squaredNorm();
    for (const double e : errors) {
      const double a = std::abs(e);
      const double k = options_.outlier;
      sum += a <= k ? a * a : 2 * k * a - k * k;
    }
    return sum;
  }

  Vector residuals(const Vector& x) const {
    const std::vector<double> parameters = values(x);
    const std::vector<double> predicted = model_(parameters);
    Vector errors(log_measured_.size());
    for (Eigen::Index i = 0; i < errors.size(); ++i) {
      errors[i] = std::log(predicted[static_cast<std::size_t>(i)]) - log_measured_[i];
    }
    return errors;
  }

  Matrix derivatives(const Vector& x, const Vector& errors) const {
    Matrix jacobian(errors.size(), x.size());
    for (Eigen::Index i = 0; i < x.size(); ++i) {
      Vector moved = x;
      moved[i] += kStep;
      jacobian.col(i) = (residuals(moved) - errors) / kStep;
    }
    return jacobian;
  }

  const std::function<std::vector<double>(std::span<const double>)>& model_;
  PositiveFitOptions options_;
  Vector log_measured_;
  Vector start_;
};

}  // namespace

std::vector<double> fit_positive(
    const std::function<std::vector<double>(std::span<const double>)>& model,
    std::span<const double> measured, std::span<const double> start,
    const PositiveFitOptions& options) {
  if (start.empty()) return {};
  return PositiveFit(model, measured, start, options).run();
}

}  // namespace hydraulis

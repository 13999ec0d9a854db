// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// Launches that are prepared once and then repeated: a graph of one kernel.
#include <memory>

#include "device/cuda.hpp"

namespace tutti::device {
namespace {

struct GraphLauncher {
  int device = 0;
  Function function = nullptr;
  cuda::Graph graph = nullptr;
  cuda::GraphNode node = nullptr;
  cuda::GraphExec executable = nullptr;

  cuda::KernelNodeParameters parameters(const LaunchShape& shape, void** arguments) const {
    return {.function = function,
            .grid = {shape.grid[0], shape.grid[1], shape.grid[2]},
            .block = {shape.block[0], shape.block[1], shape.block[2]},
            .shared_bytes = shape.shared_bytes,
            .arguments = arguments,
            .extra = nullptr,
            .kernel = nullptr,
            .context = nullptr};
  }
};

}  // namespace

Result<Launcher> CudaApi::create_launcher(Function function, int device, const LaunchShape& shape,
                                          void** arguments) {
  if (!cu_.graph_create || !cu_.graph_destroy || !cu_.graph_add_kernel_node ||
      !cu_.graph_instantiate || !cu_.graph_exec_destroy || !cu_.graph_exec_kernel_node_set_params ||
      !cu_.graph_launch) {
    return Launcher{};
  }
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter(device));
  auto launcher = std::make_unique<GraphLauncher>();
  launcher->device = device;
  launcher->function = function;
  TUTTI_RETURN_IF_ERROR(check(cu_.graph_create(&launcher->graph, 0)));
  const cuda::KernelNodeParameters parameters = launcher->parameters(shape, arguments);
  Status status =
      check(cu_.graph_add_kernel_node(&launcher->node, launcher->graph, nullptr, 0, &parameters));
  int least = 0;
  cuda::LaunchAttributeValue priority{};
  if (status.ok() && cu_.graph_kernel_node_set_attribute &&
      gpu_.get_stream_priority_range(&least, &priority.priority) == cuda::kSuccess) {
    // As our streams have; a driver that does not know the attribute launches all the same.
    (void)cu_.graph_kernel_node_set_attribute(launcher->node, cuda::kLaunchAttributePriority,
                                              &priority);
  }
  if (status.ok()) {
    status = check(cu_.graph_instantiate(&launcher->executable, launcher->graph, 0));
  }
  if (!status.ok()) {
    (void)cu_.graph_destroy(launcher->graph);
    return status;
  }
  return static_cast<Launcher>(launcher.release());
}

Status CudaApi::destroy_launcher(Launcher handle) {
  const std::unique_ptr<GraphLauncher> launcher(static_cast<GraphLauncher*>(handle));
  if (launcher == nullptr) {
    return {};
  }
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(gone_is_fine(scope.enter(launcher->device)));
  const Status executable = check_free(cu_.graph_exec_destroy(launcher->executable));
  const Status graph = check_free(cu_.graph_destroy(launcher->graph));
  return executable.ok() ? graph : executable;
}

Status CudaApi::launch_again(Launcher handle, const LaunchShape& shape, Stream stream,
                             void** arguments) {
  const auto& launcher = *static_cast<const GraphLauncher*>(handle);
  Scope scope(*this);
  TUTTI_RETURN_IF_ERROR(scope.enter(launcher.device));
  const cuda::KernelNodeParameters parameters = launcher.parameters(shape, arguments);
  TUTTI_RETURN_IF_ERROR(check(
      cu_.graph_exec_kernel_node_set_params(launcher.executable, launcher.node, &parameters)));
  return check(cu_.graph_launch(launcher.executable, stream));
}

}  // namespace tutti::device

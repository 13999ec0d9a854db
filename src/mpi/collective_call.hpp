// SPDX-FileCopyrightText: 2026 the Tutti authors
// SPDX-License-Identifier: BSD-3-Clause
//
// From an application's arguments to a plan's run: what every wrapper shares. Reads the arguments
// (arguments.hpp), asks the engine for the plan, and either calls MPI on them, or on copies
// (native_staged.hpp), or hands the plan a dense runners::Call (movement.hpp).
#pragma once

#include "mpi/comm_state.hpp"
#include "mpi/view.hpp"

namespace tutti::mpi::TUTTI_FLAVOUR {

/// The answer to a call that this rank could not carry out. All but a refused fall-back, which
/// every rank refuses alike, breaks the communicator: the peers may be in the call, and what this
/// rank did next would meet what they still do in it. Returns an MPI code, passed to the error
/// handler.
int fail_call(CommState& state, engine::Communicator& engine, const Status& status);

/// After a remembered native call that MPI has refused: it may have been refused at its root alone.
void note_refused(CommState& state, const engine::Communicator& engine, const View& view);

/// Before a call that is no refused one made again: of one that was, others may be in steps of
/// ours. `agrees`: the ranks agree on the memory of this call.
Status settle_apart(CommState& state, bool agrees);

/// A call that goes to MPI as it is: the next one with the same arguments need not ask for its
/// plan, where plans follow from the arguments alone.
void remember_native(CommState& state, const View& view, const engine::Route& route);

/// Returns an MPI code; errors have been passed to the communicator's error handler.
int perform(CommState& state, const View& view, const NativeCall& native);

}  // namespace tutti::mpi::TUTTI_FLAVOUR

"""One seed: a node, its disk, its devices, everything that goes wrong, and what must hold.

Phases of a run:

1. *Safety.* Devices come, talk and go; the log's writer gets its turns or does not; checkpoints are
   written a chunk at a time; faults strike. Invariants are told of all of it.
2. *Liveness.* Faults end. Everybody comes back for the session they have, and within so many rounds
   nothing moves any more: everything acknowledged has been delivered.
3. *Rot.* Bits that are surely below the watermark are flipped, and the node starts once more.

Python decides everything and nothing is drawn but from the seed, so a seed is a run. What happens
natively is one turn per call. `trace` names the run: two runs of a seed have the same.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from quantumqtt import _core
from quantumqtt.errors import CorruptLog, StorageError
from quantumqtt.simulation import commands
from quantumqtt.simulation.bugs import Bug
from quantumqtt.simulation.commands import Command, Limits
from quantumqtt.simulation.device import Device
from quantumqtt.simulation.durable import Applied, Life
from quantumqtt.simulation.effects import Acknowledge, Effect, SessionOpened
from quantumqtt.simulation.faults import FaultKind, FaultPlan
from quantumqtt.simulation.front import Connection, Front
from quantumqtt.simulation.invariants import ALL, Broken, Invariant, Recovery
from quantumqtt.simulation.invariants.same_state import SameState
from quantumqtt.simulation.packets import Connect, Disconnect
from quantumqtt.simulation.shadow import Shadow

STEPS: Final = 500
ROUNDS_MAX: Final = 400
"""Rounds within which everything comes to rest once faults have ended."""
HEAD_BYTES: Final = 64
BEGIN_MS: Final = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a seed went."""

    seed: int
    trace: str
    entries: int
    restarts: int
    checkpoints: int
    acknowledged: int
    delivered: int
    faults: dict[str, int]
    crashes: dict[str, int]
    refused: bool
    """Whether flipped bits led to a refusal; else they were harmless, or repaired."""
    steps: int
    """Steps of the safety phase that were taken."""
    broken: Broken | None


class World:
    """See the head of this file."""

    def __init__(
        self,
        seed: int,
        *,
        bug: Bug | None = None,
        steps: int = STEPS,
        without: Collection[FaultKind] = (),
        story: Callable[[str], None] | None = None,
    ) -> None:
        """Make everything from the seed; `story` is told all that goes into the trace."""
        self._seed = seed
        self._story = story
        self._taken_steps = 0
        self._bug = bug
        self._steps = steps
        self._dice = random.Random(f"world {seed}")
        self._faults = FaultPlan(random.Random(f"faults {seed}"), without=without)
        self._disk = _core.SimulatedDisk(seed)
        self._trace = hashlib.blake2b(digest_size=16)
        self._now_ms = BEGIN_MS
        self._life: Life | None = None
        self._lives = 0
        self._shadow = Shadow()
        is_shared = bug is not None and bug.value.is_shared
        self._invariants: list[Invariant] = [
            kind(self._shadow) for kind in ALL if not (is_shared and kind is SameState)
        ]
        self._seen = 0
        self._front = Front(
            random.Random(f"front {seed}"), bug, on_sent=self._on_sent, on_goodbye=self._on_goodbye
        )
        count = self._dice.randint(3, 6)
        self._devices = [
            Device(f"d{n}", random.Random(f"device {seed} {n}"), is_stored=n > 0)
            for n in range(count)
        ]
        self._next_number = 1
        self._slow_steps = 0
        self._full_steps = 0
        self._checkpoint_index: int | None = None
        self._last_checkpoint = 0
        self._checkpoints = 0
        self._floor: int | None = None
        self._is_damaged = False
        self._is_refused = False
        self._counts: Counter[str] = Counter()
        self._crashes: Counter[str] = Counter()
        self._unanswered: list[commands.Publish] = []

    # --- the run ---------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Walk through all phases, or to the first thing that does not hold."""
        broken: Broken | None = None
        try:
            for _ in range(self._steps):
                self._taken_steps += 1
                self._step()
            self._come_to_rest()
            self._rot()
        except Broken as why:
            broken = why
        except BaseException as why:
            # What the native half asserts ends a node, and a seed; the rest is not ours.
            if type(why).__name__ != "PanicException":
                raise
            broken = Broken("no_panic", str(why))
        self._note("disk", self._disk.trace_hash(), self._disk.operations())
        return Outcome(
            seed=self._seed,
            trace=self._trace.hexdigest(),
            entries=self._seen,
            restarts=max(0, self._lives - 1),
            checkpoints=self._checkpoints,
            acknowledged=sum(len(device.acknowledged) for device in self._devices),
            delivered=sum(device.delivered.total() for device in self._devices),
            faults=dict(sorted(self._counts.items())),
            crashes=dict(sorted(self._crashes.items())),
            refused=self._is_refused,
            steps=self._taken_steps,
            broken=broken,
        )

    def _note(self, *what: object) -> None:
        told = repr(what).replace(".....", "")  # padding tells nothing
        self._trace.update(told.encode())
        if self._story is not None:
            self._story(told)

    def _tell(self, tell: Callable[[Invariant], None]) -> None:
        for invariant in self._invariants:
            tell(invariant)

    def _step(self) -> None:
        self._suffer()
        if self._life is None:
            if self._dice.random() < 0.3:
                self._start()
            return
        choice = self._dice.random()
        if choice < 0.5:
            self._device_step(self._dice.choice(self._devices))
        elif choice < 0.85:
            self._turn(sync=self._slow_steps == 0 and self._dice.random() < 0.8)
        elif choice < 0.9:
            self._now_ms += self._dice.choice((1, 20, 700, 3_000, 31_000))
        else:
            self._checkpoint_step()

    # --- faults ----------------------------------------------------------------------------------

    def _suffer(self) -> None:
        self._slow_steps = max(0, self._slow_steps - 1)
        if self._full_steps:
            self._full_steps -= 1
            if not self._full_steps:
                self._disk.set_capacity(None)
        fault = self._faults.draw()
        if fault is None or self._life is None:
            return
        self._note(fault)
        self._counts[fault.kind] += 1
        match fault.kind:
            case "power_off":
                self._disk.power_off_at(self._disk.operations() + fault.extent)
            case "crash":
                self._die()
            case "sync_error" | "write_error" | "short_write":
                self._disk.inject(fault.kind, fault.extent // 6)
            case "full":
                self._disk.set_capacity(self._disk.used_bytes() + 2_000 * fault.extent)
                self._full_steps = 20 + fault.extent
            case "slow":
                self._slow_steps = fault.extent
            case "clock_back":
                self._now_ms -= 1_000 * fault.extent
            case "cut":
                connections = list(self._front.connections.values())
                if connections:
                    self._front.cut(self._dice.choice(connections))

    def _die(self) -> None:
        """The process ends, and perhaps the machine under it."""
        how = self._faults.crash()
        self._note("die", how)
        self._crashes[how] += 1
        self._disk.crash(how)
        self._wipe()
        self._life = None
        self._checkpoint_index = None
        self._front.drop_all()
        heads = {
            path: self._disk.read(path)[:HEAD_BYTES]
            for path in self._disk.paths()
            if path.startswith("wal/")
        }
        self._tell(lambda invariant: invariant.on_files(heads))

    def _wipe(self) -> None:
        """Only the log and checkpoints count: whatever else lies there may as well be gone."""
        for path in self._disk.paths():
            is_kept = path.endswith(".seg") or path.startswith("checkpoints/")
            if not is_kept and self._dice.random() < 0.3:
                self._disk.erase(path)

    def _stop(self, why: str) -> None:
        """The log has failed: the node says nothing more and dies."""
        self._note("stop", why)
        self._tell(lambda invariant: invariant.on_stopped(why))
        if self._bug is Bug.ACK_AFTER_FAILURE:
            self._front.dispatch(
                Acknowledge(
                    origin=publish.origin, kind="puback", packet_id=publish.packet_id, reason=0
                )
                for publish in self._unanswered
            )
        self._die()

    def _start(self) -> None:
        bug = self._bug
        salts = self._seed if bug is Bug.SALT_REUSED else self._seed * 1_000 + self._lives
        self._lives += 1
        try:
            life = Life(
                self._disk,
                limits=Limits(),
                now_ms=self._now_ms,
                entropy_seed=salts,
                acks_early=bug is Bug.ACK_BEFORE_SYNC,
                bend=None if bug is None else bug.value.bend,
            )
        except CorruptLog as why:
            self._note("refused", str(why))
            self._refused(str(why))
            return
        except StorageError as why:
            self._note("no start", str(why))
            self._die()
            return
        self._life = life
        self._unanswered = []
        if bug is Bug.PACKET_IDS_FORGOTTEN or bug is Bug.RETAINED_LOST:
            self._forget(life)
        for applied in life.found:
            self._commit(applied)
        status = life.status()
        self._note("start", self._lives, status)
        recovery = Recovery(life, life.found, status, self._is_damaged)
        self._tell(lambda invariant: invariant.on_recovered(recovery))

    def _refused(self, why: str) -> None:
        is_damaged = self._is_damaged
        self._is_refused |= is_damaged
        self._tell(lambda invariant: invariant.on_refused(why, is_damaged=is_damaged))
        self._disk.crash("process")

    def _forget(self, life: Life) -> None:
        """What the bugs of that name lose."""
        nobody = (1, 0, 0)
        forgotten: list[Command] = []
        if self._bug is Bug.RETAINED_LOST:
            forgotten.extend(
                commands.Publish(origin=nobody, client_id="", topic=topic, payload=b"", retain=True)
                for topic in list(self._shadow.retained)[:1]
            )
        else:
            sessions = [life.session(client_id) for client_id in life.client_ids()]
            forgotten.extend(
                commands.PubRel(
                    origin=nobody,
                    client_id=session.client_id,
                    session_epoch=session.session_epoch,
                    packet_id=packet_id,
                )
                for session in sessions
                if session is not None
                for packet_id in session.received
            )
        if forgotten:
            life.apply_unlogged(forgotten, now_ms=self._now_ms)

    # --- the node --------------------------------------------------------------------------------

    def _turn(self, *, sync: bool) -> None:
        life = self._life
        if life is None:
            return
        entries = self._front.gather()
        self._unanswered.extend(
            command
            for entry in entries
            for command in entry
            if isinstance(command, commands.Publish) and command.qos == 1
        )
        if self._bug is Bug.CLOCK_IN_APPLY:
            life.apply_unlogged([commands.Tick()], now_ms=self._now_ms + 1_000)
        seen = life.turn(entries, now_ms=self._now_ms, sync=sync)
        for applied in seen:
            self._commit(applied)
            self._front.dispatch(applied.effects)
        answered = {
            (effect.origin, effect.packet_id)
            for applied in seen
            for effect in applied.effects
            if isinstance(effect, Acknowledge)
        }
        self._unanswered = [
            publish
            for publish in self._unanswered
            if (publish.origin, publish.packet_id) not in answered
        ]
        self._tell(lambda invariant: invariant.on_turned(life, seen))
        if life.stopped is not None:
            self._stop(life.stopped)

    def _commit(self, applied: Applied) -> None:
        """An entry that is seen for the first time."""
        if applied.index <= self._seen:
            return
        self._seen = applied.index
        self._note(applied.index, applied.now_ms, applied.commands, applied.effects)
        reading = self._shadow.read(applied)
        self._tell(lambda invariant: invariant.on_committed(reading))

    def _on_sent(self, connection: Connection, effect: Effect) -> None:
        self._tell(lambda invariant: invariant.on_sent(connection, effect))

    def _on_goodbye(self, connection: Connection) -> None:
        self._tell(lambda invariant: invariant.on_goodbye(connection))

    def _checkpoint_step(self) -> None:
        life = self._life
        if life is None:
            return
        try:
            if self._checkpoint_index is None:
                if life.status()["applied"] > self._last_checkpoint:
                    self._begin_checkpoint(life)
                return
            floor = None if self._bug is Bug.FLOOR_IGNORED else self._floor
            index = life.step_checkpoint(floor=floor)
        except (StorageError, CorruptLog) as why:
            self._note("no checkpoint", str(why))
            self._checkpoint_index = None
            return
        if index is None:
            return
        self._checkpoint_index = None
        self._last_checkpoint = index
        self._checkpoints += 1
        status = life.status()
        held = self._floor
        self._note("checkpoint", index, held, status)
        self._tell(lambda invariant: invariant.on_checkpoint(index, held, status))

    def _begin_checkpoint(self, life: Life) -> None:
        # Now and then somebody who reads the log holds it, at a place that only moves on.
        if self._dice.random() < 0.3:
            oldest = max(self._floor or 0, life.status()["compacted"])
            self._floor = self._dice.randint(oldest, max(oldest, self._seen))
        elif self._dice.random() < 0.5:
            self._floor = None
        if self._bug is Bug.CURSOR_AHEAD:
            life.begin_checkpoint_state(life.status()["applied"] + 1)
            self._turn(sync=True)
            if self._life is not life:
                return
        index = life.begin_checkpoint_files()
        if self._bug is Bug.CURSOR_AHEAD:
            self._checkpoint_index = index
            return
        if self._bug is Bug.CURSOR_BEHIND:
            self._turn(sync=True)
            if self._life is not life:
                return
        if self._bug is Bug.CUT_BEFORE_PUBLISHED:
            segments = [path for path in self._disk.paths() if path.endswith(".seg")]
            if len(segments) > 1:
                # A fault may strike here, too; then this is not the time.
                with suppress(OSError):
                    self._disk.erase(segments[0])
        life.begin_checkpoint_state(index)
        self._checkpoint_index = index

    # --- devices ---------------------------------------------------------------------------------

    def _device_step(self, device: Device) -> None:
        connection = self._front.of(device)
        if connection is None:
            if self._dice.random() < 0.6:
                self._connect(device)
            return
        choice = self._dice.random()
        if choice < 0.06:
            # Without a goodbye to the old connection: the session will be taken over, and what is
            # still on its way there comes late.
            self._talk(connection, 2)
            connection.is_heard = False
            device.on_disconnected()
            self._connect(device)
        elif choice < 0.09:
            connection.is_heard = False
            device.on_disconnected()
            if self._dice.random() < 0.5:
                connection.to_broker.append(Disconnect())
            else:
                self._front.cut(connection)
        elif choice < 0.6:
            self._hear(connection, self._dice.randint(1, 6))
        else:
            self._talk(connection, self._dice.randint(1, 3))

    def _talk(self, connection: Connection, count: int) -> None:
        """The device says something new, once it knows that it is connected."""
        for _ in range(count if connection.device.is_connected else 0):
            packet = connection.device.act(self._next_number)
            if packet is not None:
                self._next_number += 1
                connection.to_broker.append(packet)

    def _connect(self, device: Device, *, clean_start: bool | None = None) -> None:
        if clean_start is None:
            clean_start = self._dice.random() < 0.12
        will_number = None
        if device.is_stored and self._dice.random() < 0.5:
            will_number = self._next_number
            self._next_number += 1
        connect: Connect = device.connect(clean_start=clean_start, will_number=will_number)
        self._front.accept(device, connect, life=self._lives)

    def _hear(self, connection: Connection, count: int) -> bool:
        """The device takes some of what was sent to it; true if there was anything."""
        device = connection.device
        heard = 0
        while connection.to_device and heard < count:
            effect = connection.to_device.popleft()
            heard += 1
            if not connection.is_opened:
                continue
            if isinstance(effect, SessionOpened):
                repeats = device.on_connected(
                    is_present=effect.session_present, incarnation=effect.incarnation
                )
                connection.to_broker.extend(repeats)
                continue
            answers, received = device.hear(effect, connection.incarnation)
            connection.to_broker.extend(answers)
            if received is not None:
                self._note(device.name, received)
                for invariant in self._invariants:
                    invariant.on_received(device, received)
        return heard > 0

    # --- liveness --------------------------------------------------------------------------------

    def _come_to_rest(self) -> None:
        """Faults end, everybody comes back, and within bounds nothing moves any more."""
        self._note("rest")
        self._disk.set_capacity(None)
        self._slow_steps = 0
        if self._life is not None:
            self._die()
        self._start()
        if self._life is None:
            self._start()
        if self._life is None:
            raise Broken("liveness", "the node does not start on a disk that works")
        for _ in range(ROUNDS_MAX):
            if not self._round():
                break
        else:
            raise Broken("liveness", f"still moving after {ROUNDS_MAX} rounds")
        self._tell(lambda invariant: invariant.at_end(self._devices))

    def _round(self) -> bool:
        """Everybody does all they can; true while anything moves."""
        moved = False
        for device in self._devices:
            connection = self._front.of(device)
            if connection is None:
                self._connect(device, clean_start=False)
                moved = True
            else:
                moved |= self._hear(connection, 1_000)
        before = self._seen
        waiting = any(connection.to_broker for connection in self._front.connections.values())
        self._turn(sync=True)
        if self._life is None:
            raise Broken("liveness", "the node stopped on a disk that works")
        return moved or waiting or self._seen > before

    # --- rot -------------------------------------------------------------------------------------

    def _rot(self) -> None:
        """Flip bits of what is surely durable, and start once more."""
        before = {path: self._disk.read(path) for path in self._disk.paths()}
        for _ in range(2):
            # Two more syncs, so that marks above all of it say that it was durable.
            connection = next(iter(self._front.connections.values()))
            self._talk(connection, 1)
            self._now_ms += 1
            for _ in range(8):
                self._turn(sync=True)
        # A crash is not rot: what it loses is found out before anything is flipped.
        self._die()
        self._start()
        self._die()
        places = [
            (path, offset)
            for path, content in before.items()
            if path in self._disk.paths()
            for offset in self._nonzero(content)
        ]
        if not places:
            return
        for _ in range(self._dice.choice((1, 1, 3))):
            path, offset = self._dice.choice(places)
            self._disk.flip(path, offset, 1 << self._dice.randint(0, 7))
            self._note("flip", path, offset)
        self._is_damaged = True
        self._start()
        if self._life is None and self._bug is Bug.DAMAGE_TAKEN_FOR_TAIL:
            for path in self._disk.paths():
                if path.startswith("wal/"):
                    self._disk.erase(path)
            self._start()

    def _nonzero(self, content: bytes) -> list[int]:
        """Some places where something was written."""
        offsets = [self._dice.randrange(len(content)) for _ in range(64)] if content else []
        return [offset for offset in offsets if content[offset]]

// What can go wrong. An error says what is wrong, where, and how to mend it.

/** Another try would end the same: an unknown set, a refused token, a broken document. */
export class Rejected extends Error {
  name = "Rejected";

  constructor(message, { status, closeCode, faults = [], isOfHub = false, mayPass = false } = {}) {
    super(message);
    Object.assign(this, { status, closeCode, faults });
    Object.defineProperty(this, "mayPass", { value: mayPass }); // what was a channel is not there
    Object.defineProperty(this, "isOfHub", { value: isOfHub }); // it has said why
  }
}

/** Another try may succeed, not before `retryAfter` seconds. */
export class TryAgain extends Error {
  name = "TryAgain";

  constructor(message, { retryAfter = 0, status, isCut = false } = {}) {
    super(message);
    Object.assign(this, { retryAfter, status });
    Object.defineProperty(this, "isCut", { value: isCut }); // a channel has brought nothing
  }
}

/** Nothing that the Source offers tells all that followed `from`: copy its Resource List anew. */
export class HistoryGone extends Error {
  name = "HistoryGone";

  constructor(from, reason) {
    super(
      `what followed ${from} cannot be had (${reason}): copy the Resource List, follow from its at`,
    );
    Object.assign(this, { from, reason });
  }
}

/** The channel itself no longer has what followed the cursor; Change Lists may. */
export class TooOld extends Error {
  name = "TooOld";
}

/** The Change Lists no longer have what was read of them before; they go up to `end` now. */
export class SetBack extends Error {
  name = "SetBack";

  constructor(message, end) {
    super(message);
    this.end = end;
  }
}

/** A notification was lost on the way: the next one does not begin at the cursor. */
export class NotJoined extends Error {
  name = "NotJoined";
}

/** There is another token: the channel is opened again with it, from the cursor. */
export class Renewed extends Error {
  name = "Renewed";

  constructor(wasRefused = false) {
    super("the token was renewed");
    this.wasRefused = wasRefused;
  }
}

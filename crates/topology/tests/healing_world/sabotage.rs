//! What a world can do without, by name. Without any of it some seed must fail: else the world could not have found the fault.

/// A fault that is put into the healer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// MariaDB's sets are compared by number, whoever wrote it.
    CompareNumbersOnly,
    /// The chosen server takes writes before it has applied what it received.
    PromoteBeforeApply,
    /// What a former writer has is read before it is closed.
    ReadBeforeClosing,
    /// The statement that opens a server has no deadline.
    OpenWithoutDeadline,
    /// A promotion says that nothing is lost.
    ReportNothingLost,
    /// A remembered takeover counts, without another look.
    ActOnAnOldRecord,
    /// An applier that has stopped with an error counts as one that works.
    IgnoreBrokenAppliers,
    /// A plan that fails leaves everything as it is.
    SkipUndo,
    /// The receivers run on while the plan is made.
    SkipFreeze,
}

impl Sabotage {
    pub(crate) const ALL: [Self; 9] = [
        Self::CompareNumbersOnly,
        Self::PromoteBeforeApply,
        Self::ReadBeforeClosing,
        Self::OpenWithoutDeadline,
        Self::ReportNothingLost,
        Self::ActOnAnOldRecord,
        Self::IgnoreBrokenAppliers,
        Self::SkipUndo,
        Self::SkipFreeze,
    ];
}

//! Parts that a world can do without, by name: a safety check of the proxy, or a guarantee of the model. Without any of them some seed must
//! fail; otherwise the simulator could not have found the fault.

use proxy::sim::Safety;

/// Something that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// A check of the proxy.
    Check(Safety),
    /// Commits wait for a replica.
    SemiSync,
    /// The proxy learns of changed roles.
    Layouts,
}

impl Lack {
    /// Everything that can be missing.
    pub fn all() -> Vec<Self> {
        Safety::ALL.into_iter().map(Self::Check).chain([Self::SemiSync, Self::Layouts]).collect()
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Check(check) => check.name(),
            Self::SemiSync => "semi_sync",
            Self::Layouts => "layouts",
        }
    }

    /// The part of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|lack| lack.name() == name)
    }
}

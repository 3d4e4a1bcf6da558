//! Places in the lists that a plan is made from, each list with a type of its own: a class is never taken for a device.

macro_rules! index_types {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) struct $name(usize);

        impl From<usize> for $name {
            fn from(place: usize) -> Self {
                Self(place)
            }
        }

        impl From<$name> for usize {
            fn from(index: $name) -> Self {
                index.0
            }
        }
    )*};
}

index_types! {
    /// A waiting job, in the order of the queue.
    JobIndex,
    /// Waiting jobs that are alike in everything that a plan depends on, but their place in the queue.
    ClassIndex,
    /// A device of the view.
    DeviceIndex,
    /// Devices of one model, mechanism and memory.
    KindIndex,
    /// A node of the view.
    NodeIndex,
    /// Devices that are alike for every job that might start there.
    PlaceIndex,
    /// A workload's profile on one model of device.
    ProfileIndex,
    /// What jobs ask of a node: CPUs and memory.
    DemandIndex,
    /// Nodes that meet the same demands.
    NodeClassIndex,
    /// A candidate: jobs that could share a device, by what is alike.
    CandidateIndex,
    /// Jobs or running hosts that are alike in everything that the selection depends on.
    GroupIndex,
    /// A device of the plan that gets jobs.
    StartIndex,
}

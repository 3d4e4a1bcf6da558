use super::*;
use proptest::prelude::*;

fn known(model: &str) -> &'static Geometry {
    Geometry::of_model(model).unwrap_or_else(|| panic!("{model} is in the table"))
}

fn profile(name: &str) -> MigProfile {
    name.parse().unwrap()
}

fn slot(name: &str, start: u8) -> Slot {
    Slot { profile: profile(name), start }
}

/// A set by the compute slices of its instances: `421`.
fn digits(set: &[Slot]) -> String {
    set.iter().map(|slot| slot.profile.compute_slices().to_string()).collect()
}

#[test]
fn names_read_back_as_they_are_written() {
    for name in ["1g.5gb", "3g.40gb", "7g.141gb", "1g.10gb+me", "1g.24gb+me.all", "1g.24gb+gfx", "2g.48gb-me"]
    {
        assert_eq!(profile(name).to_string(), name);
        assert_eq!(serde_json::from_str::<MigProfile>(&format!("\"{name}\"")).unwrap(), profile(name));
    }
    assert_eq!((profile("3g.40gb").compute_slices(), profile("3g.40gb").memory_gigabytes()), (3, 40));
}

#[test]
fn what_names_no_size_is_refused_and_quoted() {
    let others =
        ["", "g.gb", "0g.5gb", "9g.5gb", "1g.0gb", "01g.5gb", "1g.05gb", "+1g.5gb", "1g.5gb+ME", "1g.5GB"];
    for name in
        others.into_iter().chain(["1c.3g.40gb", "1g.5gb ", "1g.99999gb", "3g", "300g.5gb", "1g.5gb\n"])
    {
        assert!(name.parse::<MigProfile>().is_err(), "{name:?}");
    }
    let error = "1g.5gb\n".parse::<MigProfile>().unwrap_err().to_string();
    assert!(!error.contains('\n') && error.contains("3g.40gb"), "{error}");
}

#[test]
fn an_a100_has_twelve_maximal_sets_and_an_a30_four() {
    for model in ["a100-40", "a100-80", "h100", "h100-nvl", "h200"] {
        let sets: Vec<String> = known(model).maximal_sets(&[]).iter().map(|set| digits(set)).collect();
        let twelve =
            ["7", "43", "421", "4111", "33", "322", "3211", "31111", "2221", "22111", "211111", "1111111"];
        assert_eq!(sets, twelve, "{model}");
    }
    let sets: Vec<String> = known("a30").maximal_sets(&[]).iter().map(|set| digits(set)).collect();
    assert_eq!(sets, ["4", "22", "211", "1111"]);
}

#[test]
fn beside_tenants_there_are_fewer() {
    let a100 = known("a100-40");
    let beside =
        |taken: &[Slot]| -> Vec<String> { a100.maximal_sets(taken).iter().map(|set| digits(set)).collect() };
    assert_eq!(beside(&[slot("4g.20gb", 0)]), ["3", "21", "111"]);
    assert_eq!(beside(&[slot("3g.20gb", 4)]), ["4", "3", "22", "211", "1111"]);
    assert_eq!(beside(&[slot("3g.20gb", 0)]), ["3", "21", "111"], "a 4g starts at 0 only");
    assert_eq!(beside(&[slot("7g.40gb", 0)]), [""; 0]);
    // With the double memory: what is there need not be of a plain size.
    assert_eq!(beside(&[slot("1g.10gb", 0), slot("1g.10gb", 2)]), ["3", "21", "111"]);
}

#[test]
fn a_small_one_lies_where_it_leaves_most_room() {
    let a100 = known("a100-40");
    let single =
        |name: &str| a100.sets(&[]).into_iter().find(|set| set.len() == 1 && set[0].profile == profile(name));
    assert_eq!(single("1g.5gb"), Some(vec![slot("1g.5gb", 6)]), "a 4g and a 2g still fit");
    assert_eq!(single("2g.10gb"), Some(vec![slot("2g.10gb", 4)]));
    assert_eq!(single("3g.20gb"), Some(vec![slot("3g.20gb", 4)]));
    assert_eq!(a100.room(&[slot("3g.20gb", 4)]), [0, 1, 1, 2, 4], "of 7g, 4g, 3g, 2g and 1g");
}

#[test]
fn sizes_count_as_their_part_of_the_slices_rounded_down() {
    let counts = |model: &str| -> Vec<u8> {
        known(model).plain().map(|size| known(model).shards(size.profile).count()).collect()
    };
    assert_eq!(counts("h100"), [100, 57, 42, 28, 14]);
    assert_eq!(counts("a30"), [100, 50, 25], "of its own four slices");
    assert_eq!(known("a100-40").shards(profile("1g.10gb")).count(), 14, "its memory counts for nothing");
}

#[test]
fn ampere_is_turned_over_by_a_reset_alone() {
    let models: Vec<&str> = Geometry::models().filter(|model| needs_reset(model)).collect();
    assert_eq!(models, ["a30", "a100-40", "a100-80"]);
}

#[test]
fn the_table_says_what_the_drivers_print() {
    let h100 = known("h100");
    assert_eq!((h100.whole().profile, h100.whole().sm_count), (profile("7g.80gb"), 132));
    let three = h100.size(profile("3g.40gb")).unwrap();
    assert_eq!(
        (three.sm_count, three.memory_bytes, three.starts.as_slice()),
        (60, Some(40_448 << 20), [0, 4].as_slice())
    );
    assert_eq!(h100.size(profile("1g.10gb+me")).unwrap().instances_max, 1);
    assert_eq!(known("h200").whole().memory_bytes, None, "nobody has printed it");
    assert_eq!(Geometry::models().count(), 6);
    assert_eq!(Geometry::of_model("v100"), None);
}

#[test]
fn what_cannot_lie_together_is_refused_and_said_why() {
    let a100 = known("a100-40");
    for (slots, why) in [
        (vec![slot("3g.40gb", 0)], "the device has no 3g.40gb"),
        (vec![slot("2g.10gb", 6)], "a 2g.10gb may not start at memory slice 6"),
        (
            vec![slot("4g.20gb", 0), slot("1g.5gb", 3)],
            "4g.20gb at 0 and 1g.5gb at 3 take the same memory slice",
        ),
        (vec![slot("1g.5gb+me", 0), slot("1g.5gb+me", 1)], "there are too many 1g.5gb+me"),
    ] {
        assert_eq!(a100.check(&slots).unwrap_err().to_string(), why);
    }
    assert_eq!(a100.check(&[slot("3g.20gb", 4), slot("4g.20gb", 0)]), Ok(()));
}

#[test]
fn sizes_of_no_device_are_refused() {
    let one = known("a100-40").sizes()[0].clone();
    assert_eq!(Geometry::try_new(vec![]), Err(InvalidGeometry::Empty));
    assert_eq!(Geometry::try_new(vec![one.clone(); 33]), Err(InvalidGeometry::TooMany(33)));
    assert_eq!(Geometry::try_new(vec![one.clone(); 2]), Err(InvalidGeometry::Twice(one.profile)));
    for outside in [Size { memory_slices: 0, ..one.clone() }, Size { starts: vec![0, 255], ..one.clone() }] {
        assert_eq!(Geometry::try_new(vec![outside]), Err(InvalidGeometry::Outside(one.profile)));
    }
    let json = serde_json::to_string(known("a30")).unwrap();
    assert_eq!(&serde_json::from_str::<Geometry>(&json).unwrap(), known("a30"));
    assert!(serde_json::from_str::<Geometry>("[]").is_err());
}

#[test]
fn a_driver_goes_before_the_table() {
    let listed = known("h200");
    assert_eq!(resolve(None, "h200"), (Some(listed.clone()), vec![]));
    assert_eq!(resolve(None, "v100"), (None, vec![]));
    let mut sizes = listed.sizes().to_vec();
    sizes[0].memory_bytes = Some(1 << 37);
    sizes[2].starts = vec![0];
    sizes[1].sm_count = 66;
    let gone = sizes.pop().unwrap().profile;
    let told = Geometry::try_new(sizes).unwrap();
    let (used, found) = resolve(Some(told.clone()), "h200");
    assert_eq!(used, Some(told.clone()));
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "4g.71gb has 66 SMs; the table says 64".to_owned(),
            "3g.71gb may start at [0]; the table says [0, 4]".to_owned(),
            format!("the driver has no {gone}"),
        ]
    );
    assert_eq!(resolve(Some(told.clone()), "gh200"), (Some(told.clone()), vec![]));
    assert_eq!(differences(&told, listed).last(), Some(&Difference::Unlisted(gone)));
}

/// Additions drawn one after the other, any size and place, while they fit.
fn drawn(geometry: &Geometry, picks: &[usize]) -> Vec<Slot> {
    let places: Vec<Slot> = geometry
        .sizes()
        .iter()
        .flat_map(|size| size.starts.iter().map(|start| Slot { profile: size.profile, start: *start }))
        .collect();
    let mut slots = Vec::new();
    for pick in picks {
        slots.push(places[pick % places.len()]);
        if geometry.check(&slots).is_err() {
            slots.pop();
        }
    }
    slots
}

proptest! {
    #[test]
    fn whatever_may_lie_together_is_disjoint_and_within_a_hundred_shards(
        model in 0_usize..6,
        picks in proptest::collection::vec(any::<usize>(), 0..40),
    ) {
        let geometry = known(Geometry::models().nth(model).unwrap());
        let slots = drawn(geometry, &picks);
        let shards: u32 = slots.iter().map(|slot| u32::from(geometry.shards(slot.profile).count())).sum();
        prop_assert!(shards <= 100, "{shards} of {slots:?}");
        let mut owners = [None; Geometry::MEMORY_SLICES_MAX as usize];
        for slot in &slots {
            for slice in slot.start..slot.start + geometry.size(slot.profile).unwrap().memory_slices {
                prop_assert_eq!(owners[usize::from(slice)].replace(*slot), None, "{:?}", slots);
            }
        }
    }

    #[test]
    fn what_may_be_added_may_be_added_and_the_rest_may_not(
        picks in proptest::collection::vec(any::<usize>(), 0..6),
    ) {
        let geometry = known("h100");
        let taken = drawn(geometry, &picks);
        let sets = geometry.sets(&taken);
        for set in &sets {
            prop_assert_eq!(geometry.check(&[taken.as_slice(), set].concat()), Ok(()));
            prop_assert!(set.is_sorted_by(|a, b| a.profile >= b.profile), "the larger first: {:?}", set);
        }
        let singles = sets.iter().filter(|set| set.len() == 1).count();
        let room = geometry.room(&taken);
        prop_assert_eq!(singles, room.iter().filter(|count| **count > 0).count());
        prop_assert_eq!(sets.is_empty(), geometry.maximal_sets(&taken).is_empty());
    }
}

//! The disk that pretends answers like the one that does not.

use std::io::{ErrorKind, IoSlice};

use quantumqtt_records::{Disk, FileDisk, SimDisk};

/// Every call of the seam, with what must come of it.
fn walk(disk: &dyn Disk) {
    assert!(disk.list("log").expect("an absent directory is empty").is_empty());
    disk.make_dir("log/aside").expect("made");
    disk.make_dir("log/aside").expect("one that exists is fine");
    let missing = disk.open("log/a").map(drop).expect_err("nobody made it");
    assert_eq!(missing.kind(), ErrorKind::NotFound);

    let file = disk.create("log/b").expect("made");
    assert_eq!(disk.create("log/b").map(drop).expect_err("twice").kind(), ErrorKind::AlreadyExists);
    let written = file.write_at(0, &[IoSlice::new(b"one "), IoSlice::new(b"two")]);
    assert_eq!(written.expect("written"), 7);
    assert_eq!(file.write_at(4, &[IoSlice::new(b"TWO")]).expect("written"), 3);
    file.sync_data().expect("synced");
    assert_eq!(file.length().expect("known"), 7);
    let mut into = [0; 10];
    assert_eq!(file.read_at(0, &mut into).expect("read"), 7);
    assert_eq!(&into[..7], b"one TWO");
    assert_eq!(file.read_at(7, &mut into).expect("the end"), 0);
    assert_eq!(file.read_at(900, &mut into).expect("beyond the end"), 0);

    disk.create("log/c").expect("made");
    disk.create("log/aside/d").expect("made");
    assert_eq!(disk.list("log").expect("listed"), ["b", "c"]);
    disk.rename("log/b", "log/c").expect("in place of the other");
    disk.sync_dir("log").expect("synced");
    assert_eq!(disk.list("log").expect("listed"), ["c"]);
    assert_eq!(disk.open("log/c").expect("there").length().expect("known"), 7);
    disk.remove("log/c").expect("removed");
    let missing = disk.remove("log/c").expect_err("it is gone");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    // Whoever has it open reads on.
    assert_eq!(file.read_at(0, &mut into).expect("read"), 7);
}

#[test]
fn both_disks_answer_alike() {
    walk(&SimDisk::new());
    let folder = std::env::temp_dir().join(format!("records-disks-{}", std::process::id()));
    walk(&FileDisk::new(&folder));
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn a_power_cut_keeps_what_was_synced_and_any_part_of_the_rest() {
    let disk = SimDisk::new();
    let file = disk.create("log/a").expect("made");
    file.write_at(0, &[IoSlice::new(&[1; 2000])]).expect("written");
    file.sync_data().expect("synced");
    disk.sync_dir("log").expect("synced");
    file.write_at(0, &[IoSlice::new(&[2; 2000])]).expect("written");
    disk.rename("log/a", "log/b").expect("renamed");
    let (mut names, mut torn) = (std::collections::BTreeSet::new(), 0);
    for seed in 0..50 {
        let after = disk.after_power_cut(seed);
        let files = after.files();
        assert_eq!(files.len(), 1, "one of the names, never both, never none");
        let bytes = after.bytes(&files[0]).expect("there");
        assert!(bytes.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        torn += u32::from(bytes.contains(&1) && bytes.contains(&2));
        names.extend(files);
    }
    assert_eq!(names.len(), 2, "the rename came through sometimes");
    assert!(torn > 10, "and the write in part, {torn} times");
}

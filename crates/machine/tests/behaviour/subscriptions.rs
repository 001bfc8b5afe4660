//! Filters, options, overlapping subscriptions, limits.

use quantumqtt_machine::{
    Command, Limits, Publish, Subscribe, SubscribeFilter, SubscriptionOptions,
};
use quantumqtt_wire::{QoS, ReasonCode};

use crate::rig::{Link, Rig, only, publishing};

fn filter(filter: &str, qos: QoS) -> SubscribeFilter<'_> {
    SubscribeFilter { filter, options: SubscriptionOptions::with_qos(qos), refused: None }
}

fn subscribe(
    link: Link,
    subscription_id: Option<u32>,
    filters: Vec<SubscribeFilter<'_>>,
) -> Command<'_> {
    Command::Subscribe(Subscribe {
        origin: link.origin,
        client_id: link.client_id,
        session_epoch: link.epoch,
        packet_id: 7,
        subscription_id,
        filters,
    })
}

fn publish(rig: &mut Rig, topic: &str) -> Vec<String> {
    let lines = rig.run(Command::Publish(publishing(9, QoS::ExactlyOnce, topic, "x")));
    only(&lines, "publish")
}

// req: SUB-04
#[test]
fn suback_has_one_code_per_filter_in_order() {
    let mut rig = Rig::with_limits(Limits { subscriptions_max: 2, ..Limits::default() });
    let link = rig.connect("a");
    let refused = SubscribeFilter {
        refused: Some(ReasonCode::NOT_AUTHORIZED),
        ..filter("secret/#", QoS::AtMostOnce)
    };
    let lines = rig.run(subscribe(
        link,
        None,
        vec![
            filter("a", QoS::AtMostOnce),
            refused,
            filter("a/#/b", QoS::AtMostOnce),
            filter("b", QoS::ExactlyOnce),
            filter("c", QoS::AtLeastOnce),
            filter("a", QoS::AtLeastOnce),
        ],
    ));
    assert_eq!(lines, ["suback c1 [0, 87, 8f, 2, 97, 1]"]);
    assert_eq!(rig.machine.statistics().subscriptions, 2);
    assert_eq!(publish(&mut rig, "secret/x"), [""; 0]);
}

// req: SUB-08
//
#[test]
fn overlapping_filters_yield_one_copy_at_the_highest_qos_with_all_ids() {
    let mut rig = Rig::new();
    let link = rig.connect("a");
    rig.run(subscribe(link, Some(7), vec![filter("#", QoS::AtMostOnce)]));
    rig.run(subscribe(link, Some(3), vec![filter("a/+", QoS::AtLeastOnce)]));
    rig.run(subscribe(link, None, vec![filter("a/b", QoS::ExactlyOnce)]));
    assert_eq!(publish(&mut rig, "a/b"), ["publish c1 #1 a/b=x q2 ids [7, 3]"]);
    assert_eq!(publish(&mut rig, "z"), ["publish c1 z=x q0 ids [7]"]);
}

// req: SUB-07
#[test]
fn no_local_keeps_a_message_from_its_own_publisher_only() {
    let mut rig = Rig::new();
    let link = rig.connect("a");
    let options =
        SubscriptionOptions { no_local: true, ..SubscriptionOptions::with_qos(QoS::AtLeastOnce) };
    rig.run(link.subscribe("t", options));
    let own = rig.run(Command::Publish(link.publish(1, QoS::AtLeastOnce, "t", "mine")));
    assert_eq!(only(&own, "publish"), [""; 0]);
    assert_eq!(publish(&mut rig, "t"), ["publish c1 #1 t=x q1"]);
}

// req: SUB-05
#[test]
fn subscribing_again_replaces_options() {
    let mut rig = Rig::new();
    let link = rig.connect_to("a", "t", QoS::AtMostOnce);
    rig.run(subscribe(link, Some(4), vec![filter("t", QoS::AtLeastOnce)]));
    assert_eq!(publish(&mut rig, "t"), ["publish c1 #1 t=x q1 ids [4]"]);
    assert_eq!(rig.machine.statistics().subscriptions, 1);
}

#[test]
fn unsubscribe_answers_for_every_filter_and_stops_delivery() {
    let mut rig = Rig::new();
    let link = rig.connect_to("a", "t", QoS::AtLeastOnce);
    assert_eq!(rig.run(link.unsubscribe(&["t", "never", "a/#/b"])), ["unsuback c1 [0, 11, 8f]"]);
    assert_eq!(publish(&mut rig, "t"), [""; 0]);
    assert_eq!(rig.machine.statistics().subscriptions, 0);
}

// req: RET-04
#[test]
fn retain_as_published_decides_the_flag_of_live_messages() {
    for (retain_as_published, expected) in
        [(false, "publish c1 #1 t=x q1"), (true, "publish c1 #1 t=x q1 retain")]
    {
        let mut rig = Rig::new();
        let link = rig.connect("a");
        let options = SubscriptionOptions {
            retain_as_published,
            ..SubscriptionOptions::with_qos(QoS::AtLeastOnce)
        };
        rig.run(link.subscribe("t", options));
        let retained = Publish { retain: true, ..publishing(9, QoS::AtLeastOnce, "t", "x") };
        assert_eq!(only(&rig.run(Command::Publish(retained)), "publish"), [expected]);
    }
}

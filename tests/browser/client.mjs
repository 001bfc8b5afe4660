// MQTT.js under Node: tells one story over TCP and prints what it saw, as JSON.
// Arguments: port, protocol version (4 or 5).
import mqtt from "mqtt";

const [port, protocolVersion] = process.argv.slice(2).map(Number);
const url = `mqtt://127.0.0.1:${port}`;
const name = `node/${protocolVersion}/${process.pid}`;
const kept = protocolVersion === 5 ? { properties: { sessionExpiryInterval: 3600 } } : {};

function connect(more = {}) {
  return mqtt.connectAsync(url, { protocolVersion, reconnectPeriod: 0, ...more });
}

function inbox(client) {
  const waiting = [];
  const arrived = [];
  client.on("message", (topic, payload, packet) => {
    const one = { topic, payload: payload.toString(), qos: packet.qos, retain: packet.retain };
    const taker = waiting.shift();
    if (taker) taker(one);
    else arrived.push(one);
  });
  return () =>
    arrived.length ? Promise.resolve(arrived.shift()) : new Promise((take) => waiting.push(take));
}

const seen = {};
const writer = await connect();

const reader = await connect();
const next = inbox(reader);
await reader.subscribeAsync(`${name}/qos/+`, { qos: 2 });
seen.qos = [];
for (const qos of [0, 1, 2]) {
  await writer.publishAsync(`${name}/qos/${qos}`, "hello", { qos });
  seen.qos.push(await next());
}

await writer.publishAsync(`${name}/kept`, "kept", { qos: 1, retain: true });
await reader.subscribeAsync(`${name}/kept`, { qos: 1 });
seen.retained = await next();

await reader.subscribeAsync(`${name}/will`, { qos: 1 });
const will = { topic: `${name}/will`, payload: Buffer.from("gone"), qos: 1 };
const lost = await connect({ will });
lost.on("error", () => {});
lost.stream.destroy();
seen.will = await next();

const session = { clientId: `node-${process.pid}-${protocolVersion}`, clean: false, ...kept };
const before = await connect(session);
await before.subscribeAsync(`${name}/missed`, { qos: 1 });
before.on("error", () => {});
before.stream.destroy();
await writer.publishAsync(`${name}/missed`, "missed", { qos: 1 });
const back = mqtt.connect(url, { protocolVersion, reconnectPeriod: 0, ...session });
const missed = inbox(back)();
seen.present = await new Promise((take) => back.on("connect", (ack) => take(ack.sessionPresent)));
seen.missed = await missed;

for (const client of [writer, reader, back]) await client.endAsync();
console.log(JSON.stringify(seen));

// workers_and_children.js N: N times /bin/true, every tenth time also a worker thread; asynchronous, four at a time.
'use strict';

const { spawn } = require('node:child_process');
const { once } = require('node:events');
const { Worker } = require('node:worker_threads');

async function one(number) {
  const [status] = await once(spawn('/bin/true'), 'exit');
  if (status !== 0) throw new Error(`a child ended with ${status}`);
  if (number % 10 === 0) await once(new Worker('', { eval: true }), 'exit');
}

async function main(count) {
  let next = 0;
  const runner = async () => {
    while (next < count) await one(next++);
  };
  await Promise.all([runner(), runner(), runner(), runner()]);
}

main(Number(process.argv[2]));

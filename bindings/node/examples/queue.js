'use strict';
// queue.js URI FOLDER: does the jobs in a folder, one file each, beside other processes that run this. Each job is done once.

const fs = require('node:fs');
const path = require('node:path');
const { Client } = require('..'); // in a program of its own: 'libdlock'

const [uri, folder] = process.argv.slice(2);

(async () => {
  const client = new Client(uri);
  for (const name of fs.readdirSync(folder)) {
    const grant = await client.tryAcquire(name);
    if (!grant) continue; // somebody else is doing it
    const file = path.join(folder, name);
    if (fs.existsSync(file)) {
      process.stdout.write(`${name}: ${fs.readFileSync(file)}`); // the work
      fs.unlinkSync(file);
    } // else somebody else has done it since the folder was read
    await grant.release();
  }
  await client.close();
})();

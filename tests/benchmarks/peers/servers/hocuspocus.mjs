// Hocuspocus with its defaults; DB=path adds its SQLite extension.
import { createRequire } from 'node:module'

const require = createRequire(process.env.NODE_BASE + '/')
const { Server } = require('@hocuspocus/server')
const extensions = []
if (process.env.DB) {
  const { SQLite } = require('@hocuspocus/extension-sqlite')
  extensions.push(new SQLite({ database: process.env.DB }))
}
await new Server({ port: Number(process.env.PORT), address: '127.0.0.1', quiet: true, extensions }).listen()

// The package as it is published, in projects of all kinds. Only `redis` is installed beside it.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';

const run = promisify(execFile);
const TOOLS = resolve('node_modules');
let project = '';

before(async () => {
  project = await mkdtemp(join(tmpdir(), 'fairlock-'));
  await mkdir(join(project, 'node_modules', '@types'), { recursive: true });
  const { stdout } = await run('npm', ['pack', '--silent', '--pack-destination', project]);
  await run('tar', ['-xzf', stdout.trim()], { cwd: project });
  await cp(join(project, 'package'), join(project, 'node_modules/fairlock'), { recursive: true });
  for (const each of ['redis', '@redis', 'cluster-key-slot', '@types/node', 'undici-types']) await symlink(join(TOOLS, each), join(project, 'node_modules', each));
});
after(() => rm(project, { recursive: true }));

const USE = "new Locks(createClient()); console.log(new NotInTime('late').name);";
const IMPORT = `import { createClient } from 'redis';\nimport { Locks, NotInTime, type Held, type LockOptions } from 'fairlock';\nexport let held: Held | undefined;\nexport const within = (wait?: number): LockOptions => ({ wait });\n${USE}\n`;

async function says(program: string, ...args: string[]): Promise<void> {
  const { stdout } = await run(program, args, { cwd: project });
  assert.equal(stdout.trim().split('\n').at(-1), 'NotInTime');
}

test('require and import give the same classes', async () => {
  await writeFile(join(project, 'both.mjs'), `
    import { createRequire } from 'node:module';
    import { Locks, NotInTime } from 'fairlock';
    if (createRequire(import.meta.url)('fairlock').Locks === Locks) console.log(new NotInTime('late').name);`);
  await says('node', 'both.mjs');
});

for (const [module, type] of [['commonjs', 'commonjs'], ['node16', 'module']] as const) {
  test(`TypeScript with module ${module} in a package of type ${type}`, async () => {
    await writeFile(join(project, 'package.json'), JSON.stringify({ type }));
    await writeFile(join(project, 'app.ts'), IMPORT);
    await run('node', [join(TOOLS, 'typescript/bin/tsc'), '--strict', '--exactOptionalPropertyTypes', '--target', 'es2022', '--module', module, '--esModuleInterop', '--types', 'node', 'app.ts'], { cwd: project });
    await says('node', 'app.js');
  });
}

test('esbuild', async () => {
  await writeFile(join(project, 'app.mts'), IMPORT);
  await run(join(TOOLS, '.bin/esbuild'), ['app.mts', '--bundle', '--platform=node', '--outfile=bundle.cjs'], { cwd: project });
  await says('node', 'bundle.cjs');
});

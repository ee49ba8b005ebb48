// For `import`: the same classes as for `require`.
export * from './index.js';

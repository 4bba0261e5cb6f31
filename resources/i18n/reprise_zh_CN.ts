<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="zh_CN">
    <context>
        <name>AboutDialog</name>
        <message>
            <source>About Reprise</source>
            <translation>关于 Reprise</translation>
        </message>
        <message>
            <source>Version {0}</source>
            <translation>版本 {0}</translation>
        </message>
        <message>
            <source>Language models that run on your own machine, and never read the same text twice.</source>
            <translation>在您自己的电脑上运行的语言模型，同一段文字绝不读第二遍。</translation>
        </message>
        <message>
            <source>Nothing is sent anywhere, unless you set up a shared store. Your conversations, your models and what the models remember stay in files on this computer.</source>
            <translation>除非您设置了共享存储，否则不会向任何地方发送任何内容。您的对话、模型以及模型记住的一切，都只保存在这台电脑的文件里。</translation>
        </message>
        <message>
            <source>Free software under the Apache License 2.0. Icons by Lucide, ISC License.</source>
            <translation>自由软件，采用 Apache 2.0 许可证。图标来自 Lucide，采用 ISC 许可证。</translation>
        </message>
        <message>
            <source>Close</source>
            <translation>关闭</translation>
        </message>
    </context>
    <context>
        <name>Actions</name>
        <message>
            <source>New chat</source>
            <translation>新对话</translation>
        </message>
        <message>
            <source>Search conversations</source>
            <translation>搜索对话</translation>
        </message>
        <message>
            <source>Rename conversation</source>
            <translation>重命名对话</translation>
        </message>
        <message>
            <source>Delete conversation</source>
            <translation>删除对话</translation>
        </message>
        <message>
            <source>Conversation above</source>
            <translation>上一个对话</translation>
        </message>
        <message>
            <source>Conversation below</source>
            <translation>下一个对话</translation>
        </message>
        <message>
            <source>Open a model file…</source>
            <translation>打开模型文件…</translation>
        </message>
        <message>
            <source>Models…</source>
            <translation>模型…</translation>
        </message>
        <message>
            <source>Unload the model</source>
            <translation>卸载模型</translation>
        </message>
        <message>
            <source>Show or hide conversations</source>
            <translation>显示或隐藏对话列表</translation>
        </message>
        <message>
            <source>Show or hide the cache panel</source>
            <translation>显示或隐藏缓存面板</translation>
        </message>
        <message>
            <source>Enter sends the message</source>
            <translation>按 Enter 发送消息</translation>
        </message>
        <message>
            <source>Settings</source>
            <translation>设置</translation>
        </message>
        <message>
            <source>Larger</source>
            <translation>放大</translation>
        </message>
        <message>
            <source>Smaller</source>
            <translation>缩小</translation>
        </message>
        <message>
            <source>Original size</source>
            <translation>原始大小</translation>
        </message>
        <message>
            <source>Keyboard shortcuts</source>
            <translation>键盘快捷键</translation>
        </message>
        <message>
            <source>About Reprise</source>
            <translation>关于 Reprise</translation>
        </message>
        <message>
            <source>Quit</source>
            <translation>退出</translation>
        </message>
        <message>
            <source>Like the system</source>
            <translation>跟随系统</translation>
        </message>
        <message>
            <source>Light</source>
            <translation>浅色</translation>
        </message>
        <message>
            <source>Dark</source>
            <translation>深色</translation>
        </message>
        <message>
            <source>Appearance</source>
            <translation>外观</translation>
        </message>
        <message>
            <source>Language</source>
            <translation>语言</translation>
        </message>
        <message>
            <source>Text size</source>
            <translation>文字大小</translation>
        </message>
        <message>
            <source>All conversations, JSON…</source>
            <translation>所有对话，JSON…</translation>
        </message>
        <message>
            <source>Export</source>
            <translation>导出</translation>
        </message>
        <message>
            <source>For all conversations…</source>
            <translation>适用于所有对话…</translation>
        </message>
        <message>
            <source>Import conversations…</source>
            <translation>导入对话…</translation>
        </message>
        <message>
            <source>Instructions and sampling…</source>
            <translation>指令与采样…</translation>
        </message>
        <message>
            <source>This conversation, JSON…</source>
            <translation>当前对话，JSON…</translation>
        </message>
        <message>
            <source>This conversation, Markdown…</source>
            <translation>当前对话，Markdown…</translation>
        </message>
    </context>
    <context>
        <name>AdviceSection</name>
        <message>
            <source>Nothing is being kept on disk at the moment.</source>
            <translation>目前没有向磁盘保存任何内容。</translation>
        </message>
        <message>
            <source>Only {0} of what was known was reused in the last {1} turns.</source>
            <translation>最近 {1} 轮中，已读内容只复用了 {0}。</translation>
        </message>
        <message>
            <source>Show the setting</source>
            <translation>查看相关设置</translation>
        </message>
        <message>
            <source>The disk brings back {0} tokens a second; reading them anew makes {1}.</source>
            <translation>磁盘每秒可取回 {0} 个词元，重新读取每秒为 {1} 个。</translation>
        </message>
        <message>
            <source>The first word sometimes takes {0} instead of {1}.</source>
            <translation>首个词有时要等 {0}，平时只需 {1}。</translation>
        </message>
        <message>
            <source>{0} are held that no conversation in use explains.</source>
            <translation>有 {0} 内存被占用，却不属于任何正在使用的对话。</translation>
        </message>
    </context>
    <context>
        <name>Attachments</name>
        <message>
            <source>“{0}” is a folder</source>
            <translation>“{0}”是一个文件夹</translation>
        </message>
        <message>
            <source>“{0}” is larger than 1 MB</source>
            <translation>“{0}”超过 1 MB</translation>
        </message>
        <message>
            <source>“{0}” cannot be read: {1}</source>
            <translation>无法读取“{0}”：{1}</translation>
        </message>
        <message>
            <source>Remove {0}</source>
            <translation>移除 {0}</translation>
        </message>
        <message>
            <source>“{0}” is not a text file</source>
            <translation>“{0}”不是文本文件</translation>
        </message>
    </context>
    <context>
        <name>CachePanel</name>
        <message>
            <source>Memory now</source>
            <translation>当前记忆</translation>
        </message>
        <message>
            <source>Settings</source>
            <translation>设置</translation>
        </message>
        <message>
            <source>Cache panel</source>
            <translation>缓存面板</translation>
        </message>
        <message>
            <source>Advice</source>
            <translation>建议</translation>
        </message>
        <message>
            <source>Kept on disk</source>
            <translation>磁盘上的保留内容</translation>
        </message>
    </context>
    <context>
        <name>CacheStrip</name>
        <message>
            <source>{0} tokens ready, {1} to read, about {2}</source>
            <translation>{0} 个词元已就绪，{1} 个待读取，约 {2}</translation>
        </message>
    </context>
    <context>
        <name>ChoiceButton</name>
        <message numerus="yes">
            <source>%n message(s)</source>
            <translation>
                <numerusform>%n 条消息</numerusform>
            </translation>
        </message>
    </context>
    <context>
        <name>CodeBlock</name>
        <message>
            <source>Copy</source>
            <translation>复制</translation>
        </message>
        <message>
            <source>text</source>
            <translation>文本</translation>
        </message>
        <message>
            <source>Code, {0}</source>
            <translation>代码，{0}</translation>
        </message>
        <message>
            <source>Show fewer lines</source>
            <translation>收起</translation>
        </message>
        <message>
            <source>Show all {0} lines</source>
            <translation>显示全部 {0} 行</translation>
        </message>
        <message>
            <source>Copied</source>
            <translation>已复制</translation>
        </message>
    </context>
    <context>
        <name>CodecCheck</name>
        <message>
            <source>Same next word</source>
            <translation>下一个词相同</translation>
        </message>
        <message>
            <source>Surprise at the text (NLL)</source>
            <translation>对文本的意外程度（NLL）</translation>
        </message>
        <message>
            <source>Divergence (KL)</source>
            <translation>分布差异（KL）</translation>
        </message>
        <message>
            <source>Measured on this model over {0} tokens, against 16-bit:</source>
            <translation>在该模型上用 {0} 个词元测得，与 16 位相比：</translation>
        </message>
        <message>
            <source>Below the limit, used because you chose to. Over {0} tokens:</source>
            <translation>低于要求，因您的选择而使用。{0} 个词元测得：</translation>
        </message>
    </context>
    <context>
        <name>CodecRefusedDialog</name>
        <message>
            <source>Memory precision</source>
            <translation>记忆精度</translation>
        </message>
        <message>
            <source>{0} loses too much on this model</source>
            <translation>{0}在该模型上损失过大</translation>
        </message>
        <message>
            <source>{0} was read twice: over {1} tokens its predictions with this memory precision were compared with exact ones.</source>
            <translation>{0} 被读取了两遍：用 {1} 个词元，将此记忆精度下的预测与精确预测作了比较。</translation>
        </message>
        <message>
            <source>Same next word</source>
            <translation>下一个词相同</translation>
        </message>
        <message>
            <source>Surprise at the text (NLL)</source>
            <translation>对文本的意外程度（NLL）</translation>
        </message>
        <message>
            <source>Divergence (KL)</source>
            <translation>分布差异（KL）</translation>
        </message>
        <message>
            <source>measured</source>
            <translation>测得</translation>
        </message>
        <message>
            <source>wanted</source>
            <translation>要求</translation>
        </message>
        <message>
            <source>16-bit takes more memory and loses nothing. What you choose here can be changed in the settings at any time.</source>
            <translation>16 位占用更多内存，但没有损失。此处的选择可随时在设置中更改。</translation>
        </message>
        <message>
            <source>Use it anyway</source>
            <translation>仍然使用</translation>
        </message>
        <message>
            <source>Use 16-bit</source>
            <translation>使用 16 位</translation>
        </message>
        <message>
            <source>Cancel</source>
            <translation>取消</translation>
        </message>
    </context>
    <context>
        <name>Composer</name>
        <message>
            <source>Attach text files</source>
            <translation>附加文本文件</translation>
        </message>
        <message>
            <source>Choose a model to send this</source>
            <translation>选择模型后即可发送</translation>
        </message>
        <message>
            <source>Message</source>
            <translation>消息</translation>
        </message>
        <message>
            <source>Stop (Esc)</source>
            <translation>停止（Esc）</translation>
        </message>
        <message>
            <source>Write now, choose a model to send</source>
            <translation>现在就可以写，选择模型后发送</translation>
        </message>
        <message>
            <source>Message {0}</source>
            <translation>给 {0} 发消息</translation>
        </message>
        <message>
            <source>Send after this reply</source>
            <translation>在此回复之后发送</translation>
        </message>
        <message>
            <source>Enter</source>
            <translation>Enter</translation>
        </message>
        <message>
            <source>Ctrl+Enter</source>
            <translation>Ctrl+Enter</translation>
        </message>
        <message>
            <source>Send ({0})</source>
            <translation>发送（{0}）</translation>
        </message>
        <message>
            <source>Will be queued after this reply</source>
            <translation>将排在此回复之后</translation>
        </message>
    </context>
    <context>
        <name>ContextMarker</name>
        <message numerus="yes">
            <source>%n message(s) no longer in the model's context</source>
            <translation>
                <numerusform>%n 条消息已不在模型的上下文中</numerusform>
            </translation>
        </message>
    </context>
    <context>
        <name>ContextMeter</name>
        <message>
            <source>This conversation takes {0} of the {1} tokens the model can see</source>
            <translation>此对话占用模型可见的 {1} 个词元中的 {0} 个</translation>
        </message>
        <message>
            <source>{0} more, and the oldest messages no longer fit</source>
            <translation>再增加 {0} 个，最早的消息就放不下了</translation>
        </message>
    </context>
    <context>
        <name>ConversationDelegate</name>
        <message>
            <source>Title of the conversation</source>
            <translation>对话标题</translation>
        </message>
    </context>
    <context>
        <name>ConversationListModel</name>
        <message>
            <source>New chat</source>
            <translation>新对话</translation>
        </message>
        <message numerus="yes">
            <source>%n token(s) kept</source>
            <translation>
                <numerusform>已保留 %n 个词元</numerusform>
            </translation>
        </message>
        <message numerus="yes">
            <source>%n would be read</source>
            <translation>
                <numerusform>需读取 %n 个</numerusform>
            </translation>
        </message>
        <message>
            <source>ready: {0}</source>
            <translation>就绪：{0}</translation>
        </message>
        <message>
            <source>unread</source>
            <translation>未读</translation>
        </message>
        <message>
            <source>Pinned</source>
            <translation>已置顶</translation>
        </message>
        <message>
            <source>Archived</source>
            <translation>已归档</translation>
        </message>
        <message>
            <source>Chats</source>
            <translation>对话</translation>
        </message>
    </context>
    <context>
        <name>ConversationPane</name>
        <message>
            <source>New chat</source>
            <translation>新对话</translation>
        </message>
        <message>
            <source>Search titles and text</source>
            <translation>搜索标题和内容</translation>
        </message>
        <message>
            <source>Search conversations</source>
            <translation>搜索对话</translation>
        </message>
        <message>
            <source>Conversations</source>
            <translation>对话列表</translation>
        </message>
        <message>
            <source>Hide archived</source>
            <translation>隐藏已归档</translation>
        </message>
        <message>
            <source>Show archived</source>
            <translation>显示已归档</translation>
        </message>
        <message>
            <source>Nothing found for “{0}”.</source>
            <translation>没有找到“{0}”。</translation>
        </message>
        <message>
            <source>No conversations yet. Write a message to begin the first one.</source>
            <translation>还没有对话。写一条消息，开始第一个对话。</translation>
        </message>
    </context>
    <context>
        <name>EmptyState</name>
        <message>
            <source>Explain why the sky is blue, first in one sentence, then in five.</source>
            <translation>解释天空为什么是蓝色的：先用一句话，再用五句话。</translation>
        </message>
        <message>
            <source>Write a Python function that finds the longest word in a text, with a test.</source>
            <translation>写一个 Python 函数，找出文本中最长的单词，并附上测试。</translation>
        </message>
        <message>
            <source>Help me plan a quiet weekend by the sea for two people.</source>
            <translation>帮我为两个人安排一个安静的海边周末。</translation>
        </message>
        <message>
            <source>What would you like to talk about?</source>
            <translation>想聊点什么？</translation>
        </message>
        <message>
            <source>{0} answers on this computer. Nothing you write leaves it.</source>
            <translation>{0} 就在这台电脑上回答，您写的内容不会离开这里。</translation>
        </message>
        <message>
            <source>Choose a model to begin</source>
            <translation>选择一个模型开始</translation>
        </message>
        <message>
            <source>Open a GGUF file, drop one on this window, or get the small starter model. You can read and write here in the meantime.</source>
            <translation>打开一个 GGUF 文件、把文件拖到此窗口，或获取小巧的入门模型。在此期间您仍可阅读和书写。</translation>
        </message>
        <message>
            <source>Choose a model…</source>
            <translation>选择模型…</translation>
        </message>
    </context>
    <context>
        <name>ErrorDialog</name>
        <message>
            <source>Something went wrong</source>
            <translation>出现了问题</translation>
        </message>
        <message>
            <source>Copied</source>
            <translation>已复制</translation>
        </message>
        <message>
            <source>Show details</source>
            <translation>显示详情</translation>
        </message>
        <message>
            <source>Copy details</source>
            <translation>复制详情</translation>
        </message>
        <message>
            <source>Close</source>
            <translation>关闭</translation>
        </message>
        <message>
            <source>Hide details</source>
            <translation>隐藏详情</translation>
        </message>
        <message>
            <source>Reprise met an error it did not expect. Your conversations are safe.</source>
            <translation>Reprise 遇到了意料之外的错误。您的对话是安全的。</translation>
        </message>
    </context>
    <context>
        <name>Exchange</name>
        <message numerus="yes">
            <source>%n conversation(s) imported</source>
            <translation>
                <numerusform>已导入 %n 个对话</numerusform>
            </translation>
        </message>
        <message>
            <source>Conversations (*.json)</source>
            <translation>对话 (*.json)</translation>
        </message>
        <message>
            <source>Export</source>
            <translation>导出</translation>
        </message>
        <message>
            <source>Import conversations</source>
            <translation>导入对话</translation>
        </message>
        <message>
            <source>JSON (*.json)</source>
            <translation>JSON (*.json)</translation>
        </message>
        <message>
            <source>Markdown (*.md)</source>
            <translation>Markdown (*.md)</translation>
        </message>
        <message>
            <source>Saved as {0}</source>
            <translation>已保存为 {0}</translation>
        </message>
    </context>
    <context>
        <name>FoldersDialog</name>
        <message>
            <source>Add a folder</source>
            <translation>添加文件夹</translation>
        </message>
        <message>
            <source>Add a folder…</source>
            <translation>添加文件夹…</translation>
        </message>
        <message>
            <source>Close</source>
            <translation>关闭</translation>
        </message>
        <message>
            <source>Model folders</source>
            <translation>模型文件夹</translation>
        </message>
        <message>
            <source>Models are looked for in these folders and all folders inside them.</source>
            <translation>将在这些文件夹及其所有子文件夹中查找模型。</translation>
        </message>
        <message>
            <source>Remove from the list</source>
            <translation>从列表中移除</translation>
        </message>
        <message>
            <source>Remove {0}</source>
            <translation>移除 {0}</translation>
        </message>
    </context>
    <context>
        <name>HistorySection</name>
        <message numerus="yes">
            <source>%n damaged block(s) dropped</source>
            <translation>
                <numerusform>已丢弃 %n 个损坏的块</numerusform>
            </translation>
        </message>
        <message>
            <source>A moment…</source>
            <translation>请稍候…</translation>
        </message>
        <message>
            <source>All {0} blocks are sound ({1})</source>
            <translation>全部 {0} 个块完好（{1}）</translation>
        </message>
        <message>
            <source>Check</source>
            <translation>检查</translation>
        </message>
        <message>
            <source>Deleted</source>
            <translation>已删除</translation>
        </message>
        <message>
            <source>Forgets what the models have read. The conversations themselves stay.</source>
            <translation>忘掉模型已读的内容，对话本身会保留。</translation>
        </message>
        <message>
            <source>Free all</source>
            <translation>全部释放</translation>
        </message>
        <message>
            <source>Free what is kept of {0}</source>
            <translation>释放“{0}”的保留内容</translation>
        </message>
        <message>
            <source>Free {0}</source>
            <translation>释放 {0}</translation>
        </message>
        <message>
            <source>New chat</source>
            <translation>新对话</translation>
        </message>
        <message>
            <source>Nothing is kept yet.</source>
            <translation>还没有保留任何内容。</translation>
        </message>
        <message>
            <source>Reads everything once and drops what is damaged.</source>
            <translation>完整读取一遍，丢弃损坏的部分。</translation>
        </message>
        <message numerus="yes">
            <source>Show all %n</source>
            <translation>
                <numerusform>显示全部 %n 个</numerusform>
            </translation>
        </message>
        <message>
            <source>Show fewer</source>
            <translation>收起</translation>
        </message>
        <message>
            <source>Shrink the file</source>
            <translation>压缩文件</translation>
        </message>
        <message>
            <source>{0}
{1} tokens, {2} of its own, {3} shared with others, used {4}</source>
            <translation>{0}
{1} 个词元，独占 {2}，与其他对话共享 {3}，使用于{4}</translation>
        </message>
        <message>
            <source>{0} freed</source>
            <translation>已释放 {0}</translation>
        </message>
        <message>
            <source>{0} given back, {1} in use</source>
            <translation>已归还 {0}，仍使用 {1}</translation>
        </message>
    </context>
    <context>
        <name>InstructionsDesk</name>
        <message>
            <source>All conversations</source>
            <translation>所有对话</translation>
        </message>
        <message>
            <source>This conversation</source>
            <translation>当前对话</translation>
        </message>
        <message>
            <source>Told to the model before everything else. Changing it has the conversation read again once.</source>
            <translation>在一切内容之前告诉模型。修改后，对话需要重新读取一次。</translation>
        </message>
        <message>
            <source>Told to the model in every conversation without instructions of its own.</source>
            <translation>在每个没有自己指令的对话中告诉模型。</translation>
        </message>
    </context>
    <context>
        <name>InstructionsDialog</name>
        <message>
            <source>As in all conversations</source>
            <translation>与所有对话相同</translation>
        </message>
        <message>
            <source>Cancel</source>
            <translation>取消</translation>
        </message>
        <message>
            <source>For example: Answer briefly, in plain words.</source>
            <translation>例如：请用通俗的语言简短回答。</translation>
        </message>
        <message>
            <source>Instructions</source>
            <translation>指令</translation>
        </message>
        <message>
            <source>Sampling</source>
            <translation>采样</translation>
        </message>
        <message>
            <source>Sampling as in all conversations</source>
            <translation>采样与所有对话相同</translation>
        </message>
        <message>
            <source>Save</source>
            <translation>保存</translation>
        </message>
    </context>
    <context>
        <name>JumpButton</name>
        <message>
            <source>Jump to latest</source>
            <translation>跳到最新</translation>
        </message>
    </context>
    <context>
        <name>LibraryModel</name>
        <message>
            <source>context {0}</source>
            <translation>上下文 {0}</translation>
        </message>
    </context>
    <context>
        <name>MainWindow</name>
        <message>
            <source>Conversation deleted</source>
            <translation>对话已删除</translation>
        </message>
        <message>
            <source>Undo</source>
            <translation>撤销</translation>
        </message>
        <message>
            <source>Message deleted</source>
            <translation>消息已删除</translation>
        </message>
    </context>
    <context>
        <name>MessageActions</name>
        <message>
            <source>Copy as Markdown</source>
            <translation>复制为 Markdown</translation>
        </message>
        <message>
            <source>Copy</source>
            <translation>复制</translation>
        </message>
        <message>
            <source>Copy as plain text</source>
            <translation>复制为纯文本</translation>
        </message>
        <message>
            <source>Copy selection</source>
            <translation>复制所选内容</translation>
        </message>
        <message>
            <source>Edit</source>
            <translation>编辑</translation>
        </message>
        <message>
            <source>Regenerate</source>
            <translation>重新生成</translation>
        </message>
        <message>
            <source>Continue</source>
            <translation>继续</translation>
        </message>
        <message>
            <source>Delete</source>
            <translation>删除</translation>
        </message>
        <message>
            <source>Keep when the context is full</source>
            <translation>上下文已满时保留</translation>
        </message>
        <message>
            <source>Keep no longer</source>
            <translation>不再保留</translation>
        </message>
    </context>
    <context>
        <name>MessageEditor</name>
        <message>
            <source>Edit message</source>
            <translation>编辑消息</translation>
        </message>
        <message>
            <source>The earlier version is kept</source>
            <translation>之前的版本会保留</translation>
        </message>
        <message>
            <source>Send</source>
            <translation>发送</translation>
        </message>
        <message>
            <source>Save</source>
            <translation>保存</translation>
        </message>
        <message>
            <source>Cancel</source>
            <translation>取消</translation>
        </message>
    </context>
    <context>
        <name>MessageView</name>
        <message>
            <source>Conversation</source>
            <translation>对话</translation>
        </message>
    </context>
    <context>
        <name>MessageWidget</name>
        <message>
            <source>Your message</source>
            <translation>您的消息</translation>
        </message>
        <message>
            <source>Reply</source>
            <translation>回复</translation>
        </message>
    </context>
    <context>
        <name>ModelButton</name>
        <message>
            <source>Choose a model</source>
            <translation>选择模型</translation>
        </message>
        <message>
            <source>Loading {0}</source>
            <translation>正在加载 {0}</translation>
        </message>
        <message>
            <source>Model:</source>
            <translation>模型：</translation>
        </message>
        <message>
            <source>Checking the memory precision</source>
            <translation>正在检查记忆精度</translation>
        </message>
    </context>
    <context>
        <name>ModelNote</name>
        <message>
            <source>This is a base model without a chat template: it goes on with a text rather than answering, so replies may ramble or speak for you. An “instruct” or “chat” version of it answers better.</source>
            <translation>这是没有对话模板的基础模型：它会续写文本而不是回答，因此回复可能东拉西扯，甚至替您说话。它的 “instruct” 或 “chat” 版本更适合对话。</translation>
        </message>
        <message>
            <source>Got it</source>
            <translation>知道了</translation>
        </message>
    </context>
    <context>
        <name>ModelSwitch</name>
        <message>
            <source>Open a model file</source>
            <translation>打开模型文件</translation>
        </message>
        <message>
            <source>Models (*.gguf)</source>
            <translation>模型 (*.gguf)</translation>
        </message>
    </context>
    <context>
        <name>ModelsDialog</name>
        <message>
            <source>Models</source>
            <translation>模型</translation>
        </message>
        <message>
            <source>There is no model here yet. Open a .gguf file, or drop one on the window.</source>
            <translation>这里还没有模型。打开一个 .gguf 文件，或把文件拖到窗口上。</translation>
        </message>
        <message>
            <source>Open a file…</source>
            <translation>打开文件…</translation>
        </message>
        <message>
            <source>Unload</source>
            <translation>卸载</translation>
        </message>
        <message>
            <source>Close</source>
            <translation>关闭</translation>
        </message>
        <message>
            <source>Load</source>
            <translation>加载</translation>
        </message>
        <message>
            <source>Needs about {0}: {1} for the model, {2} for {3} tokens. {4} are free.</source>
            <translation>约需 {0}：模型 {1}，{3} 个词元 {2}。可用内存 {4}。</translation>
        </message>
        <message>
            <source>Load anyway</source>
            <translation>仍然加载</translation>
        </message>
        <message>
            <source>Folders…</source>
            <translation>文件夹…</translation>
        </message>
    </context>
    <context>
        <name>NowSection</name>
        <message>
            <source>In memory</source>
            <translation>内存中</translation>
        </message>
        <message>
            <source>What the model has read and goes on from instantly.</source>
            <translation>模型已读过、可立即继续的内容。</translation>
        </message>
        <message>
            <source>In reserve</source>
            <translation>备用内存</translation>
        </message>
        <message>
            <source>Packed tighter in memory; back in a moment.</source>
            <translation>在内存中压缩存放，片刻即可恢复。</translation>
        </message>
        <message>
            <source>On disk</source>
            <translation>磁盘上</translation>
        </message>
        <message>
            <source>Kept over a restart; back in a fraction of a second.</source>
            <translation>重启后仍保留，不到一秒即可恢复。</translation>
        </message>
        <message>
            <source>Shared blocks</source>
            <translation>共享的块</translation>
        </message>
        <message>
            <source>Saved by sharing</source>
            <translation>共享节省</translation>
        </message>
        <message>
            <source>Reused, last 20 turns</source>
            <translation>最近 20 轮复用率</translation>
        </message>
        <message>
            <source>Speed</source>
            <translation>速度</translation>
        </message>
        <message>
            <source>The numbers appear with the first model.</source>
            <translation>加载第一个模型后，这里会显示数据。</translation>
        </message>
        <message numerus="yes">
            <source>Saving, %n write(s) to go</source>
            <translation>
                <numerusform>正在保存，还剩 %n 次写入</numerusform>
            </translation>
        </message>
        <message>
            <source>Everything is saved</source>
            <translation>全部已保存</translation>
        </message>
    </context>
    <context>
        <name>QuestionCard</name>
        <message>
            <source>Do this from now on</source>
            <translation>以后都这样做</translation>
        </message>
        <message>
            <source>New conversation</source>
            <translation>新对话</translation>
        </message>
        <message>
            <source>Asks this in a new conversation with the same instructions</source>
            <translation>在指令相同的新对话中提出此问题</translation>
        </message>
        <message>
            <source>Cancel</source>
            <translation>取消</translation>
        </message>
        <message>
            <source>Takes the message back</source>
            <translation>收回这条消息</translation>
        </message>
        <message>
            <source>This conversation no longer fits</source>
            <translation>此对话已放不下</translation>
        </message>
    </context>
    <context>
        <name>ReasoningSection</name>
        <message>
            <source>Thinking…</source>
            <translation>思考中…</translation>
        </message>
        <message>
            <source>Thoughts</source>
            <translation>思考过程</translation>
        </message>
        <message>
            <source>Thought for about {0} tokens</source>
            <translation>思考了约 {0} 个词元</translation>
        </message>
    </context>
    <context>
        <name>ReplyFooter</name>
        <message>
            <source>Earlier version</source>
            <translation>上一个版本</translation>
        </message>
        <message>
            <source>Later version</source>
            <translation>下一个版本</translation>
        </message>
        <message>
            <source>first token {0}</source>
            <translation>首个词元 {0}</translation>
        </message>
        <message>
            <source>reused {0}</source>
            <translation>复用 {0}</translation>
        </message>
        <message>
            <source>read {0}</source>
            <translation>读取 {0}</translation>
        </message>
        <message>
            <source>Why?</source>
            <translation>为什么？</translation>
        </message>
        <message>
            <source>Why so much had to be read again</source>
            <translation>为什么要重新读取这么多</translation>
        </message>
        <message>
            <source>Stays when the context is full</source>
            <translation>上下文已满时保留</translation>
        </message>
    </context>
    <context>
        <name>RowMenu</name>
        <message>
            <source>Archive</source>
            <translation>归档</translation>
        </message>
        <message>
            <source>Delete</source>
            <translation>删除</translation>
        </message>
        <message>
            <source>Export</source>
            <translation>导出</translation>
        </message>
        <message>
            <source>Folder</source>
            <translation>文件夹</translation>
        </message>
        <message>
            <source>Instructions and sampling…</source>
            <translation>指令与采样…</translation>
        </message>
        <message>
            <source>JSON, all branches…</source>
            <translation>JSON，含所有分支…</translation>
        </message>
        <message>
            <source>Markdown…</source>
            <translation>Markdown…</translation>
        </message>
        <message>
            <source>Name of the folder</source>
            <translation>文件夹名称</translation>
        </message>
        <message>
            <source>New folder</source>
            <translation>新建文件夹</translation>
        </message>
        <message>
            <source>New folder…</source>
            <translation>新建文件夹…</translation>
        </message>
        <message>
            <source>Pin</source>
            <translation>置顶</translation>
        </message>
        <message>
            <source>Rename</source>
            <translation>重命名</translation>
        </message>
        <message>
            <source>Take out of the archive</source>
            <translation>移出归档</translation>
        </message>
        <message>
            <source>Take out of the folder</source>
            <translation>移出文件夹</translation>
        </message>
        <message>
            <source>Unpin</source>
            <translation>取消置顶</translation>
        </message>
    </context>
    <context>
        <name>SafeModeDialog</name>
        <message>
            <source>Reprise did not end properly last time</source>
            <translation>Reprise 上次没有正常退出</translation>
        </message>
        <message>
            <source>Your conversations are safe. If a model was the cause, start without it and choose another one.</source>
            <translation>您的对话是安全的。如果是某个模型引起的，可以先不加载它，再选择另一个。</translation>
        </message>
        <message>
            <source>Start as usual</source>
            <translation>照常启动</translation>
        </message>
        <message>
            <source>Start without a model</source>
            <translation>不加载模型启动</translation>
        </message>
    </context>
    <context>
        <name>SamplingForm</name>
        <message>
            <source>0 always takes the likeliest word.</source>
            <translation>0 总是选最可能的词。</translation>
        </message>
        <message>
            <source>1 is off; 1.1 discourages repeating.</source>
            <translation>1 为关闭；1.1 可减少重复。</translation>
        </message>
        <message>
            <source>Balanced</source>
            <translation>均衡</translation>
        </message>
        <message>
            <source>Discourages every word that was used.</source>
            <translation>抑制所有用过的词。</translation>
        </message>
        <message>
            <source>Discourages words the more they were used.</source>
            <translation>用得越多的词抑制越强。</translation>
        </message>
        <message>
            <source>Drops words rarer than this share of the likeliest.</source>
            <translation>去掉概率低于最可能词这一比例的词。</translation>
        </message>
        <message>
            <source>Frequency penalty</source>
            <translation>频率惩罚</translation>
        </message>
        <message>
            <source>Keeps the likeliest words up to this share; 1 is off.</source>
            <translation>保留累计到此比例的最可能的词；1 为关闭。</translation>
        </message>
        <message>
            <source>Keeps this many of the likeliest words; 0 is off.</source>
            <translation>保留这么多最可能的词；0 为关闭。</translation>
        </message>
        <message>
            <source>Lively</source>
            <translation>活泼</translation>
        </message>
        <message>
            <source>Min p</source>
            <translation>Min p</translation>
        </message>
        <message>
            <source>Precise</source>
            <translation>精确</translation>
        </message>
        <message>
            <source>Presence penalty</source>
            <translation>存在惩罚</translation>
        </message>
        <message>
            <source>Repetition penalty</source>
            <translation>重复惩罚</translation>
        </message>
        <message>
            <source>Seed</source>
            <translation>随机种子</translation>
        </message>
        <message>
            <source>Temperature</source>
            <translation>温度</translation>
        </message>
        <message>
            <source>The same seed gives the same reply again.</source>
            <translation>相同的种子会得到相同的回复。</translation>
        </message>
        <message>
            <source>Top k</source>
            <translation>Top k</translation>
        </message>
        <message>
            <source>Top p</source>
            <translation>Top p</translation>
        </message>
        <message>
            <source>random</source>
            <translation>随机</translation>
        </message>
    </context>
    <context>
        <name>SettingsForm</name>
        <message>
            <source>reload</source>
            <translation>需重载</translation>
        </message>
        <message>
            <source>Reset</source>
            <translation>恢复默认</translation>
        </message>
        <message>
            <source>Reload the model to apply</source>
            <translation>重新加载模型以生效</translation>
        </message>
        <message>
            <source>Nothing is kept on disk.</source>
            <translation>磁盘上不保留任何内容。</translation>
        </message>
        <message>
            <source>now {0}</source>
            <translation>当前 {0}</translation>
        </message>
        <message>
            <source>Fewer settings</source>
            <translation>收起设置</translation>
        </message>
        <message>
            <source>More settings</source>
            <translation>更多设置</translation>
        </message>
        <message>
            <source>Keep conversations ready</source>
            <translation>让对话保持就绪</translation>
        </message>
        <message>
            <source>Stores what the model has read, so that nothing is read twice.</source>
            <translation>保存模型读过的内容，不必再读第二遍。</translation>
        </message>
        <message>
            <source>Memory precision</source>
            <translation>记忆精度</translation>
        </message>
        <message>
            <source>Memory per 1,000 tokens; less precision holds more.</source>
            <translation>每 1,000 个词元占用的内存；精度越低，容纳越多。</translation>
        </message>
        <message>
            <source>Context length</source>
            <translation>上下文长度</translation>
        </message>
        <message>
            <source>How much of a conversation the model can see at once.</source>
            <translation>模型一次能看到的对话长度。</translation>
        </message>
        <message>
            <source>Memory budget</source>
            <translation>内存预算</translation>
        </message>
        <message>
            <source>RAM for conversations that go on instantly.</source>
            <translation>用于可立即继续的对话的内存。</translation>
        </message>
        <message>
            <source>Disk budget</source>
            <translation>磁盘预算</translation>
        </message>
        <message>
            <source>The longest unused conversations make room for new ones.</source>
            <translation>最久未用的对话为新对话腾出空间。</translation>
        </message>
        <message>
            <source>Block size</source>
            <translation>块大小</translation>
        </message>
        <message>
            <source>Smaller blocks share more, larger ones are faster.</source>
            <translation>块越小共享越多，块越大速度越快。</translation>
        </message>
        <message>
            <source>Processor threads</source>
            <translation>处理器线程</translation>
        </message>
        <message>
            <source>More than the real cores rarely helps.</source>
            <translation>超过物理核心数通常没有帮助。</translation>
        </message>
        <message>
            <source>Layers on the GPU</source>
            <translation>图形处理器上的层</translation>
        </message>
        <message>
            <source>With their memory; the processor computes the others.</source>
            <translation>连同它们的记忆；其余的层由处理器计算。</translation>
        </message>
        <message>
            <source>{0} of {1} layers</source>
            <translation>{1} 层中的 {0} 层</translation>
        </message>
        <message>
            <source>There is no graphics processor that can be used.</source>
            <translation>没有可用的图形处理器。</translation>
        </message>
        <message>
            <source>Give memory back after</source>
            <translation>空闲多久后释放内存</translation>
        </message>
        <message>
            <source>Idle conversations move from memory to disk.</source>
            <translation>空闲的对话会从内存移到磁盘。</translation>
        </message>
        <message>
            <source>Brings the likely next conversations into memory while nothing runs.</source>
            <translation>空闲时把接下来可能用到的对话提前取入内存。</translation>
        </message>
        <message>
            <source>Fetch ahead</source>
            <translation>预先取入</translation>
        </message>
        <message>
            <source>When the context is full</source>
            <translation>上下文已满时</translation>
        </message>
        <message>
            <source>The instructions and pinned messages always stay.</source>
            <translation>指令和标记保留的消息始终保留。</translation>
        </message>
        <message>
            <source>Even one that fails the check because it loses too much on a model.</source>
            <translation>即使它在某个模型上损失过大、未通过检查。</translation>
        </message>
        <message>
            <source>Any precision</source>
            <translation>允许任何精度</translation>
        </message>
        <message>
            <source>Replies at once</source>
            <translation>同时生成的回复</translation>
        </message>
        <message>
            <source>Of different conversations; together they are faster than in turn.</source>
            <translation>来自不同的对话；一起生成比依次生成更快。</translation>
        </message>
        <message>
            <source>Reserve budget</source>
            <translation>备用内存预算</translation>
        </message>
        <message>
            <source>RAM behind the memory that is computed in; of use with a graphics card.</source>
            <translation>运算所用内存之外的内存；使用显卡时有用。</translation>
        </message>
        <message>
            <source>When the disk budget is full</source>
            <translation>磁盘预算用满时</translation>
        </message>
        <message>
            <source>What is given up first.</source>
            <translation>最先放弃什么。</translation>
        </message>
        <message>
            <source>A PostgreSQL server. Your conversations and what models have read of them are sent there, readable for everyone who may read it, so that your other machines can go on with them.</source>
            <translation>一台 PostgreSQL 服务器。您的对话以及模型已读的内容会发送到那里，任何有权读取它的人都能看到，这样您的其他电脑就能接着聊下去。</translation>
        </message>
        <message>
            <source>Shared store</source>
            <translation>共享存储</translation>
        </message>
    </context>
    <context>
        <name>SharedRow</name>
        <message numerus="yes">
            <source>%n not on this machine…</source>
            <translation>
                <numerusform>%n 个不在这台电脑上…</numerusform>
            </translation>
        </message>
        <message numerus="yes">
            <source>%n state(s) to be sent.</source>
            <translation>
                <numerusform>还有 %n 个状态待发送。</numerusform>
            </translation>
        </message>
        <message>
            <source>A moment…</source>
            <translation>请稍候…</translation>
        </message>
        <message>
            <source>Bring all of them here</source>
            <translation>全部取到这里</translation>
        </message>
        <message>
            <source>Connecting…</source>
            <translation>正在连接…</translation>
        </message>
        <message>
            <source>New chat</source>
            <translation>新对话</translation>
        </message>
        <message numerus="yes">
            <source>Reachable, %n conversation(s).</source>
            <translation>
                <numerusform>可以连接，有 %n 个对话。</numerusform>
            </translation>
        </message>
        <message>
            <source>Test</source>
            <translation>测试</translation>
        </message>
        <message>
            <source>Test whether the shared store can be reached</source>
            <translation>测试共享存储能否连接</translation>
        </message>
    </context>
    <context>
        <name>ShortcutsDialog</name>
        <message>
            <source>Keyboard shortcuts</source>
            <translation>键盘快捷键</translation>
        </message>
        <message>
            <source>Send the message</source>
            <translation>发送消息</translation>
        </message>
        <message>
            <source>New line</source>
            <translation>换行</translation>
        </message>
        <message>
            <source>Stop the reply</source>
            <translation>停止回复</translation>
        </message>
        <message>
            <source>Edit the last message</source>
            <translation>编辑上一条消息</translation>
        </message>
    </context>
    <context>
        <name>StatusChip</name>
        <message>
            <source>Retry</source>
            <translation>重试</translation>
        </message>
        <message>
            <source>Continue</source>
            <translation>继续</translation>
        </message>
        <message>
            <source>Stopped</source>
            <translation>已停止</translation>
        </message>
        <message>
            <source>The reply reached its length limit</source>
            <translation>回复达到了长度上限</translation>
        </message>
        <message>
            <source>The reply failed</source>
            <translation>回复失败</translation>
        </message>
    </context>
    <context>
        <name>TierGauge</name>
        <message>
            <source>off</source>
            <translation>关闭</translation>
        </message>
        <message>
            <source>{0} of {1}</source>
            <translation>{0} / {1}</translation>
        </message>
    </context>
    <context>
        <name>TooLargeDialog</name>
        <message>
            <source>Cancel</source>
            <translation>取消</translation>
        </message>
        <message>
            <source>Load anyway</source>
            <translation>仍然加载</translation>
        </message>
        <message>
            <source>Not enough free memory</source>
            <translation>可用内存不足</translation>
        </message>
        <message>
            <source>The system would have to use the disk instead, which is many times slower. A shorter context length takes less.</source>
            <translation>系统将不得不使用磁盘代替，速度会慢许多倍。缩短上下文长度可减少占用。</translation>
        </message>
        <message>
            <source>{0} may not fit into memory</source>
            <translation>{0} 可能放不进内存</translation>
        </message>
    </context>
    <context>
        <name>TopBar</name>
        <message>
            <source>Show or hide conversations</source>
            <translation>显示或隐藏对话列表</translation>
        </message>
        <message>
            <source>Show or hide the cache panel</source>
            <translation>显示或隐藏缓存面板</translation>
        </message>
        <message>
            <source>Cancel loading</source>
            <translation>取消加载</translation>
        </message>
        <message>
            <source>Menu</source>
            <translation>菜单</translation>
        </message>
    </context>
    <context>
        <name>WaitingLine</name>
        <message>
            <source>Queued, next in line</source>
            <translation>排队中，即将开始</translation>
        </message>
        <message>
            <source>Queued, {0} before it</source>
            <translation>排队中，前面还有 {0} 个</translation>
        </message>
        <message>
            <source>Starting…</source>
            <translation>正在开始…</translation>
        </message>
        <message>
            <source>Reading {0} of {1} tokens</source>
            <translation>正在读取 {0} / {1} 个词元</translation>
        </message>
        <message>
            <source>about {0} left</source>
            <translation>约剩 {0}</translation>
        </message>
    </context>
    <context>
        <name>WelcomePage</name>
        <message>
            <source>Fetching the starter model, {0}</source>
            <translation>正在获取入门模型，{0}</translation>
        </message>
        <message>
            <source>Choose a model</source>
            <translation>选择模型</translation>
        </message>
        <message>
            <source>These models are on this computer.</source>
            <translation>这台电脑上有以下模型。</translation>
        </message>
        <message>
            <source>Welcome to Reprise</source>
            <translation>欢迎使用 Reprise</translation>
        </message>
        <message>
            <source>Language models that run on your own machine, and never read the same text twice. Nothing is sent anywhere. All it needs is a model.</source>
            <translation>在您自己的电脑上运行的语言模型，同一段文字绝不读第二遍。不会向任何地方发送任何内容。只需要一个模型。</translation>
        </message>
        <message>
            <source>Get the starter model</source>
            <translation>获取入门模型</translation>
        </message>
        <message>
            <source>SmolLM2 135M, 98 MB, Apache License 2.0. Small and quick, for a first try.</source>
            <translation>SmolLM2 135M，98 MB，Apache 2.0 许可证。小巧快速，适合初次尝试。</translation>
        </message>
        <message>
            <source>Open a model file…</source>
            <translation>打开模型文件…</translation>
        </message>
        <message>
            <source>Or drop a .gguf file anywhere on this window.</source>
            <translation>也可以把 .gguf 文件拖到此窗口的任意位置。</translation>
        </message>
    </context>
    <context>
        <name>WhyPopover</name>
        <message>
            <source>{0} tokens were read again</source>
            <translation>重新读取了 {0} 个词元</translation>
        </message>
        <message>
            <source>Reuse ended at token {0}.</source>
            <translation>复用在第 {0} 个词元处中断。</translation>
        </message>
        <message>
            <source>Before</source>
            <translation>之前</translation>
        </message>
        <message>
            <source>Now</source>
            <translation>现在</translation>
        </message>
        <message>
            <source>The conversation was new to this model.</source>
            <translation>此对话对该模型是全新的。</translation>
        </message>
        <message>
            <source>An earlier message or the system prompt was changed. Everything after the change has to be read again.</source>
            <translation>较早的消息或系统提示词被修改过，修改之后的内容都要重新读取。</translation>
        </message>
        <message>
            <source>This model's chat template changes earlier replies, for example it drops their thoughts. What follows the first changed place has to be read again.</source>
            <translation>该模型的对话模板会改动较早的回复，例如去掉其中的思考过程。第一处改动之后的内容都要重新读取。</translation>
        </message>
        <message>
            <source>The state of this conversation was let go to stay within the memory budget. A larger budget keeps more conversations ready.</source>
            <translation>为了不超出内存预算，此对话的状态已被释放。预算越大，能保持就绪的对话越多。</translation>
        </message>
        <message>
            <source>A stored part failed its check, so it was not used and read from the text instead.</source>
            <translation>有一部分已存数据未通过校验，因此没有使用，而是从文本重新读取。</translation>
        </message>
        <message>
            <source>The stored state belongs to another model or another memory precision.</source>
            <translation>已存的状态属于另一个模型或另一种记忆精度。</translation>
        </message>
        <message>
            <source>Only the last, unfinished block was read again.</source>
            <translation>只重新读取了最后一个未满的块。</translation>
        </message>
        <message>
            <source>The context was full, so the oldest messages were left out. What follows the gap has to be read again; a rolling window moves it instead.</source>
            <translation>上下文已满，因此略去了最早的消息。空缺之后的内容都要重新读取；滚动窗口则会直接移动它们。</translation>
        </message>
    </context>
    <context>
        <name>choices</name>
        <message>
            <source>As many as fit</source>
            <translation>能放下多少就放多少</translation>
        </message>
        <message>
            <source>This model was trained for {0} tokens.</source>
            <translation>该模型按 {0} 个词元训练。</translation>
        </message>
        <message>
            <source>{0} tokens</source>
            <translation>{0} 个词元</translation>
        </message>
        <message>
            <source>Automatic</source>
            <translation>自动</translation>
        </message>
        <message>
            <source>16-bit</source>
            <translation>16 位</translation>
        </message>
        <message>
            <source>16-bit, wide range</source>
            <translation>16 位（宽范围）</translation>
        </message>
        <message>
            <source>32-bit, exact</source>
            <translation>32 位（精确）</translation>
        </message>
        <message>
            <source>8-bit</source>
            <translation>8 位</translation>
        </message>
        <message>
            <source>8-bit and 4-bit</source>
            <translation>8 位与 4 位</translation>
        </message>
        <message>
            <source>{0} · about {1} of your conversations</source>
            <translation>{0} · 约可存您的 {1} 个对话</translation>
        </message>
        <message>
            <source>This model's memory cannot be moved.</source>
            <translation>该模型的记忆无法移动。</translation>
        </message>
        <message>
            <source>Ask me</source>
            <translation>询问我</translation>
        </message>
        <message>
            <source>Drop the oldest turns</source>
            <translation>略去最早的轮次</translation>
        </message>
        <message>
            <source>Keep start and end</source>
            <translation>保留开头和结尾</translation>
        </message>
        <message>
            <source>Rolling window, approximate</source>
            <translation>滚动窗口（近似）</translation>
        </message>
        <message>
            <source>Balanced</source>
            <translation>均衡</translation>
        </message>
        <message>
            <source>Longest unused first</source>
            <translation>最久未用的优先</translation>
        </message>
        <message>
            <source>Least used first</source>
            <translation>使用最少的优先</translation>
        </message>
        <message>
            <source>None</source>
            <translation>无</translation>
        </message>
    </context>
    <context>
        <name>context</name>
        <message>
            <source>Drop the oldest turns</source>
            <translation>略去最早的轮次</translation>
        </message>
        <message>
            <source>Keep start and end</source>
            <translation>保留开头和结尾</translation>
        </message>
        <message>
            <source>Rolling window</source>
            <translation>滚动窗口</translation>
        </message>
        <message>
            <source>Ask me</source>
            <translation>询问我</translation>
        </message>
        <message>
            <source>This model's memory cannot be moved.</source>
            <translation>该模型的记忆无法移动。</translation>
        </message>
        <message>
            <source>This copy was thinned out.</source>
            <translation>这份副本已被精简。</translation>
        </message>
        <message>
            <source>The chat template leaves no place to cut at.</source>
            <translation>对话模板没有可以切开的位置。</translation>
        </message>
        <message>
            <source>A part of its memory is no longer kept.</source>
            <translation>它的一部分记忆已不再保留。</translation>
        </message>
        <message>
            <source>There is no room in memory for the moved part.</source>
            <translation>内存中没有空间存放移动的部分。</translation>
        </message>
        <message>
            <source>It needs {0} tokens. Of the {1} that the model sees, {2} leave room to answer.</source>
            <translation>它需要 {0} 个词元。模型可见 {1} 个，其中用到 {2} 个以内才有空间回答。</translation>
        </message>
        <message>
            <source>{0} with {1} tokens left out</source>
            <translation>略去 {0}，共 {1} 个词元</translation>
        </message>
        <message>
            <source>{0} tokens are read again, about {1}</source>
            <translation>需重新读取 {0} 个词元，约 {1}</translation>
        </message>
        <message>
            <source>nothing is read again</source>
            <translation>无需重新读取</translation>
        </message>
        <message>
            <source>A message that is pinned keeps its turn in the context.</source>
            <translation>标记保留的消息会使其所在轮次留在上下文中。</translation>
        </message>
        <message>
            <source>the first turn stays</source>
            <translation>保留第一轮</translation>
        </message>
        <message>
            <source>approximate</source>
            <translation>近似</translation>
        </message>
    </context>
    <context>
        <name>errors</name>
        <message>
            <source>The store of what models have read was damaged and was begun anew. Your conversations are safe; they are read again when they go on.</source>
            <translation>模型已读内容的存储已损坏，现已重新建立。您的对话是安全的，继续时会重新读取。</translation>
        </message>
        <message>
            <source>What models read is not being kept on disk now: {0}</source>
            <translation>模型读过的内容目前没有保存到磁盘：{0}</translation>
        </message>
        <message>
            <source>The file of your conversations was damaged. What could be read was saved into a new one; the old file was set aside.</source>
            <translation>您的对话文件已损坏。能读出的内容已保存到新文件，旧文件已另存。</translation>
        </message>
        <message>
            <source>The model file is damaged or incomplete.</source>
            <translation>模型文件已损坏或不完整。</translation>
        </message>
        <message>
            <source>Download it again, or choose another one.</source>
            <translation>请重新下载，或选择其他文件。</translation>
        </message>
        <message>
            <source>This kind of model cannot be run yet.</source>
            <translation>暂时无法运行这类模型。</translation>
        </message>
        <message>
            <source>Choose another one; the details name what is missing.</source>
            <translation>请选择其他模型；详情中说明了缺少什么。</translation>
        </message>
        <message>
            <source>The vocabulary in the model file cannot be used.</source>
            <translation>模型文件中的词表无法使用。</translation>
        </message>
        <message>
            <source>Choose another file of this model.</source>
            <translation>请选择该模型的其他文件。</translation>
        </message>
        <message>
            <source>The model's chat template cannot show this conversation.</source>
            <translation>该模型的对话模板无法呈现此对话。</translation>
        </message>
        <message>
            <source>Another model, or a conversation without instructions, may work.</source>
            <translation>换一个模型，或去掉指令，也许可行。</translation>
        </message>
        <message>
            <source>There is not enough memory for this.</source>
            <translation>内存不足。</translation>
        </message>
        <message>
            <source>A smaller model, a shorter context or a larger budget helps.</source>
            <translation>换用较小的模型、较短的上下文或更大的预算会有帮助。</translation>
        </message>
        <message>
            <source>This memory precision loses too much on this model.</source>
            <translation>此记忆精度在该模型上损失过大。</translation>
        </message>
        <message>
            <source>Choose 16-bit, or insist on it in the settings.</source>
            <translation>请选择 16 位，或在设置中坚持使用。</translation>
        </message>
        <message>
            <source>This does not fit into what the model can see at once.</source>
            <translation>内容超出了模型一次能看到的长度。</translation>
        </message>
        <message>
            <source>Shorten the message, or choose a longer context in the settings.</source>
            <translation>请缩短消息，或在设置中选择更长的上下文。</translation>
        </message>
        <message>
            <source>What was kept of this conversation cannot be used.</source>
            <translation>此对话已保存的状态无法使用。</translation>
        </message>
        <message>
            <source>It is read again; nothing is lost.</source>
            <translation>将重新读取，不会丢失任何内容。</translation>
        </message>
        <message>
            <source>This is no longer there.</source>
            <translation>它已不存在。</translation>
        </message>
        <message>
            <source>It may have been deleted.</source>
            <translation>可能已被删除。</translation>
        </message>
        <message>
            <source>The reply was not begun.</source>
            <translation>回复没有开始。</translation>
        </message>
        <message>
            <source>Load a model and try again.</source>
            <translation>请加载模型后重试。</translation>
        </message>
        <message>
            <source>This file cannot be imported.</source>
            <translation>无法导入此文件。</translation>
        </message>
        <message>
            <source>It is damaged, or of a format that is not known.</source>
            <translation>文件已损坏，或格式未知。</translation>
        </message>
        <message>
            <source>The export cannot be written.</source>
            <translation>无法写入导出文件。</translation>
        </message>
        <message>
            <source>Choose another folder, or make room on the disk.</source>
            <translation>请选择其他文件夹，或腾出磁盘空间。</translation>
        </message>
        <message>
            <source>What models have read cannot be stored.</source>
            <translation>模型读过的内容无法保存。</translation>
        </message>
        <message>
            <source>Conversations go on; they are read again after a restart.</source>
            <translation>对话可以继续；重启后会重新读取。</translation>
        </message>
        <message>
            <source>The file of your conversations is damaged.</source>
            <translation>您的对话文件已损坏。</translation>
        </message>
        <message>
            <source>What can be read is saved into a new one at the next start.</source>
            <translation>下次启动时，会把能读出的内容保存到新文件。</translation>
        </message>
        <message>
            <source>Another program uses the file of your conversations.</source>
            <translation>另一个程序正在使用您的对话文件。</translation>
        </message>
        <message>
            <source>Close it and try again.</source>
            <translation>请关闭它后重试。</translation>
        </message>
        <message>
            <source>The disk is full.</source>
            <translation>磁盘已满。</translation>
        </message>
        <message>
            <source>Make room and try again.</source>
            <translation>请腾出空间后重试。</translation>
        </message>
        <message>
            <source>The file of your conversations cannot be opened.</source>
            <translation>无法打开您的对话文件。</translation>
        </message>
        <message>
            <source>Check the disk and the rights of its folder.</source>
            <translation>请检查磁盘及其文件夹的权限。</translation>
        </message>
        <message>
            <source>Reprise cannot write to the folder of its data.</source>
            <translation>Reprise 无法写入其数据文件夹。</translation>
        </message>
        <message>
            <source>Make room on the disk, or check the rights of the folder.</source>
            <translation>请腾出磁盘空间，或检查该文件夹的权限。</translation>
        </message>
        <message>
            <source>Your conversations were last opened by a newer version.</source>
            <translation>您的对话上次由更新的版本打开。</translation>
        </message>
        <message>
            <source>Update Reprise; nothing has been changed.</source>
            <translation>请更新 Reprise；没有任何改动。</translation>
        </message>
        <message>
            <source>A setting is out of its range.</source>
            <translation>有一项设置超出范围。</translation>
        </message>
        <message>
            <source>The details name it.</source>
            <translation>详情中指出了它。</translation>
        </message>
        <message>
            <source>The file is no longer there.</source>
            <translation>文件已不存在。</translation>
        </message>
        <message>
            <source>It may have been moved or deleted.</source>
            <translation>可能已被移动或删除。</translation>
        </message>
        <message>
            <source>The file may not be opened.</source>
            <translation>没有打开此文件的权限。</translation>
        </message>
        <message>
            <source>Check the rights of its folder.</source>
            <translation>请检查其文件夹的权限。</translation>
        </message>
        <message>
            <source>The file cannot be used.</source>
            <translation>无法使用此文件。</translation>
        </message>
        <message>
            <source>Check the disk it lies on.</source>
            <translation>请检查它所在的磁盘。</translation>
        </message>
        <message>
            <source>Chats go on as without it; it is tried again by itself.</source>
            <translation>对话照常进行；稍后会自动重试。</translation>
        </message>
        <message>
            <source>Check user, password and sslmode in its address.</source>
            <translation>请检查地址中的用户名、密码和 sslmode。</translation>
        </message>
        <message>
            <source>Install it: python -m pip install 'psycopg[binary]'</source>
            <translation>请安装：python -m pip install 'psycopg[binary]'</translation>
        </message>
        <message>
            <source>Is the database there, has it room, may its user create tables?</source>
            <translation>数据库是否存在、是否有空间、用户能否创建表？</translation>
        </message>
        <message>
            <source>It reads postgresql://user:password@host/database.</source>
            <translation>其形式为 postgresql://user:password@host/database。</translation>
        </message>
        <message>
            <source>The shared store answers, but cannot be used.</source>
            <translation>共享存储有应答，但无法使用。</translation>
        </message>
        <message>
            <source>The shared store cannot be reached.</source>
            <translation>无法连接到共享存储。</translation>
        </message>
        <message>
            <source>The shared store does not let us in.</source>
            <translation>共享存储拒绝我们登录。</translation>
        </message>
        <message>
            <source>This is no address of a PostgreSQL server.</source>
            <translation>这不是 PostgreSQL 服务器的地址。</translation>
        </message>
        <message>
            <source>psycopg, which talks to the server, is not installed.</source>
            <translation>未安装用于与服务器通信的 psycopg。</translation>
        </message>
    </context>
    <context>
        <name>formats</name>
        <message>
            <source>instant</source>
            <translation>即时</translation>
        </message>
        <message>
            <source>{0} min</source>
            <translation>{0} 分钟</translation>
        </message>
        <message>
            <source>{0} h</source>
            <translation>{0} 小时</translation>
        </message>
        <message>
            <source>just now</source>
            <translation>刚刚</translation>
        </message>
        <message>
            <source>{0} min ago</source>
            <translation>{0} 分钟前</translation>
        </message>
        <message>
            <source>{0} h ago</source>
            <translation>{0} 小时前</translation>
        </message>
        <message>
            <source>yesterday</source>
            <translation>昨天</translation>
        </message>
        <message>
            <source>{0} tokens/s</source>
            <translation>{0} 词元/秒</translation>
        </message>
    </context>
    <context>
        <name>main</name>
        <message>
            <source>Reprise is running already, but does not answer.</source>
            <translation>Reprise 已在运行，但没有响应。</translation>
        </message>
    </context>
    <context>
        <name>price</name>
        <message>
            <source>Nothing has to be read again</source>
            <translation>无需重新读取</translation>
        </message>
        <message>
            <source>Reads {0} tokens again</source>
            <translation>需重新读取 {0} 个词元</translation>
        </message>
        <message>
            <source>Reads about {0} tokens again</source>
            <translation>需重新读取约 {0} 个词元</translation>
        </message>
        <message>
            <source>A second branch takes about {0}</source>
            <translation>另一分支约占 {0}</translation>
        </message>
    </context>
    <context>
        <name>words</name>
        <message>
            <source>{0} s</source>
            <translation>{0} 秒</translation>
        </message>
        <message>
            <source>{0} min</source>
            <translation>{0} 分钟</translation>
        </message>
        <message>
            <source>{0} tokens/s</source>
            <translation>{0} 词元/秒</translation>
        </message>
    </context>
</TS>
